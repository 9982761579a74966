//! placeholder
use serde_json::Value;
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Meaning(u128);
pub fn of_template(template: &Value) -> Meaning {
    let mut t = template.clone();
    if let Some(o) = t.as_object_mut() {
        o.remove("$patch");
    }
    Meaning(
        crate::go_json::to_string(&t)
            .bytes()
            .fold(7u128, |h, b| (h ^ u128::from(b)).wrapping_mul(0x0000000001000000000000000000013B)),
    )
}
pub fn of_revision(data: &Value) -> Option<Meaning> {
    data.get("spec")?.get("template").map(of_template)
}
