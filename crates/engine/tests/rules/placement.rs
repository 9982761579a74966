use super::{check, explained};
use expect_test::expect;

#[test]
fn one_pod_on_every_node() {
    check("set d\nrev d-1\nnode a\nnode b\nnode c", expect![[""]]);
}
