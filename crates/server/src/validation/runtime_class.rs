//! Validation of RuntimeClasses. Upstream: `pkg/apis/node/validation`.

use serde_json::Value;

use super::pod::check_overhead;
use super::scheduling::check_tolerations;
use super::{Write, check_name, has, immutable, in_go};
use crate::unstructured::{list, str_at};
use crate::validation::field_error::{FieldErrors, Path};
use crate::validation::{labels, names};

pub(crate) fn runtime_class(write: &Write, out: &mut FieldErrors) {
    let class = write.new;
    let handler_at = Path::new("handler");
    check_name(str_at(class, "handler"), names::dns_label, &handler_at, out);
    if has(class, "overhead") {
        check_overhead(&class["overhead"]["podFixed"], &Path::new("overhead"), out);
    }
    let (scheduling, at) = (&class["scheduling"], Path::new("scheduling"));
    labels::check_labels(&scheduling["nodeSelector"], &at.field("nodeSelector"), out);
    let (tolerations, at) = (list(scheduling, "tolerations"), at.field("tolerations"));
    check_tolerations(tolerations, &at, out);
    let key = |it: &Value| ["key", "operator", "value", "effect"].map(|name| str_at(it, name).to_owned());
    for (index, it) in tolerations.iter().enumerate() {
        if tolerations[..index].iter().any(|other| key(other) == key(it)) {
            let fields = &[
                ("Key", "key"),
                ("Operator", "operator"),
                ("Value", "value"),
                ("Effect", "effect"),
                ("TolerationSeconds", "tolerationSeconds"),
            ];
            out.duplicate(&at.index(index), in_go(it, fields));
        }
    }
    if let Some(old) = write.old {
        immutable(&class["handler"], &old["handler"], &handler_at, out);
    }
}
