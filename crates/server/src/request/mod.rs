//! The context in which a request is executed: user, target object and options. Upstream:
//! `apiserver/pkg/endpoints/request`.

/// Verb and resource of a request, on which authorization decides.
mod attributes;
/// The object or subresource that a request reads or writes.
mod target;
/// Users, and the names and groups that have a meaning for the server.
mod user;

use std::borrow::Cow;
use std::sync::{Mutex, OnceLock, PoisonError};

use jiff::Timestamp;
use uuid::Uuid;

pub(crate) use self::attributes::{AccessTarget, RequestAttributes, ResourceAttributes, path_segments};
pub(crate) use self::target::RequestTarget;
pub(crate) use self::user::{
    AUTHENTICATED_GROUP, CREDENTIAL_ID_KEY, ClientCertificate, DAEMONSET_CONTROLLER_USER, DISRUPTION_USER,
    ENDPOINTS_USER, GARBAGE_COLLECTOR_USER, NODE_LIFECYCLE_USER, ROLLOUT_POLICY_USER, SCHEDULER_USER,
    SIMULATED_NODES_USER, TrustLevel, UNAUTHENTICATED_GROUP, User, parse_node_name, parse_service_account,
    service_account_groups, service_account_user_name,
};
use crate::validation::warnings::WARNINGS_MAX;

/// Maximum length of the name of a field manager in bytes. A longer name from the user agent is truncated.
pub(crate) const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// The context of one request: its user, verb, time and options, and the warnings and audit annotations that it
/// collects.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// See [`Self::id`].
    pub(crate) id: OnceLock<Uuid>,
    /// The request is authorized as this user.
    pub(crate) user: User,
    /// The verb that is authorized, such as `get` or `deletecollection`.
    pub(crate) verb: Cow<'static, str>,
    /// The time at which the request began.
    pub(crate) now: Timestamp,
    /// Whether the request is a dry run, which does everything except the commit.
    pub(crate) dry_run: bool,
    /// The query parameter `fieldManager`. Empty if the request has none.
    pub(crate) field_manager: String,
    /// How unknown and duplicate fields in the request body are handled.
    pub(crate) field_validation: FieldValidation,
    /// The header `User-Agent`.
    pub(crate) user_agent: String,
    /// Texts of the `Warning` headers of the response.
    pub(crate) warnings: Mutex<Vec<String>>,
    /// Annotations of the audit event of the request.
    pub(crate) audit_annotations: Mutex<Vec<AuditAnnotation>>,
}

/// Key and value of an annotation that admission adds to the audit event of a request.
pub(crate) type AuditAnnotation = (&'static str, Cow<'static, str>);

/// The query parameter `fieldValidation`: how unknown and duplicate fields in a request body are handled.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Unknown and duplicate fields are ignored.
    Ignore,
    /// The response has a warning for each unknown or duplicate field.
    #[default]
    Warn,
    /// A request with unknown or duplicate fields fails.
    Strict,
}

impl RequestContext {
    pub(crate) fn new(user: User, verb: impl Into<Cow<'static, str>>, now: Timestamp) -> Self {
        Self {
            id: OnceLock::new(),
            user,
            verb: verb.into(),
            now,
            dry_run: false,
            field_manager: String::new(),
            field_validation: FieldValidation::default(),
            user_agent: String::new(),
            warnings: Mutex::default(),
            audit_annotations: Mutex::default(),
        }
    }

    /// Returns the context of a write by the server itself.
    pub(crate) fn for_server(verb: &'static str, now: Timestamp) -> Self {
        Self { user_agent: "muster".into(), ..Self::new(User::server(), verb, now) }
    }

    /// Returns a random ID, which is the same for all attempts of the request. The first call generates it.
    pub(crate) fn id(&self) -> Uuid {
        *self.id.get_or_init(Uuid::new_v4)
    }

    /// Returns the name of the field manager, which is the parameter `fieldManager`. If the request has none, returns
    /// the user agent up to its first slash, without control characters and truncated to `FIELD_MANAGER_BYTES_MAX`.
    pub(crate) fn field_manager_name(&self) -> Cow<'_, str> {
        if !self.field_manager.is_empty() {
            return Cow::Borrowed(&self.field_manager);
        }
        let name = self.user_agent.split('/').next().unwrap_or_default();
        let mut name: Cow<'_, str> = if name.contains(char::is_control) {
            name.chars().filter(|it| !it.is_control()).collect()
        } else {
            name.into()
        };
        if FIELD_MANAGER_BYTES_MAX < name.len() {
            name = name[..name.floor_char_boundary(FIELD_MANAGER_BYTES_MAX)].to_owned().into();
        }
        name
    }

    /// Adds a `Warning` header with this text to the response. Does nothing if the response already has this warning or
    /// [`WARNINGS_MAX`] others.
    pub(crate) fn add_warning(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.len() < WARNINGS_MAX && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Sets an annotation of the audit event. A later value for the same key replaces the earlier value, because
    /// admission may run more than once.
    pub(crate) fn annotate_audit(&self, key: &'static str, value: impl Into<Cow<'static, str>>) {
        let mut annotations = self.audit_annotations.lock().unwrap_or_else(PoisonError::into_inner);
        annotations.retain(|(other, _)| *other != key);
        annotations.push((key, value.into()));
    }

    /// Returns the audit annotations and clears them.
    pub(crate) fn take_audit_annotations(&self) -> Vec<AuditAnnotation> {
        std::mem::take(&mut self.audit_annotations.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the warnings and clears them.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
