//! Validation of RuntimeClasses. Upstream: `pkg/apis/node/validation`.

use super::pod::check_overhead;
use super::scheduling::check_tolerations;
use super::{WriteToValidate, check_immutable, check_required_name, format_as_go_struct, has_field};
use crate::small_map::SmallSet;
use crate::unstructured::{list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors};
use crate::validation::{labels, names};

pub(crate) fn validate_runtime_class(write: &WriteToValidate, out: &mut FieldErrors) {
    let class = write.new;
    let handler_at = ErrorPath::new("handler");
    check_required_name(str_at(class, "handler"), names::dns_label_errors, &handler_at, out);
    if has_field(class, "overhead") {
        check_overhead(&class["overhead"]["podFixed"], &ErrorPath::new("overhead"), out);
    }
    let (scheduling, at) = (&class["scheduling"], ErrorPath::new("scheduling"));
    labels::check_labels(&scheduling["nodeSelector"], &at.field("nodeSelector"), out);
    let (tolerations, at) = (list_at(scheduling, "tolerations"), at.field("tolerations"));
    check_tolerations(tolerations, &at, out);
    let mut seen = SmallSet::default();
    for (index, it) in tolerations.iter().enumerate() {
        if !seen.insert(["key", "operator", "value", "effect"].map(|name| str_at(it, name))) {
            let fields = &[
                ("Key", "key"),
                ("Operator", "operator"),
                ("Value", "value"),
                ("Effect", "effect"),
                ("TolerationSeconds", "tolerationSeconds"),
            ];
            out.duplicate(&at.index(index), format_as_go_struct(it, fields));
        }
    }
    if let Some(old) = write.old {
        check_immutable(&class["handler"], &old["handler"], &handler_at, out);
    }
}
