//! Sets of field paths. A set is stored as a trie whose edges are path elements.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::path_element::{InvalidPathElement, PathElement};
use super::typed_value::Granularity;
use crate::types::Shape;

/// A set of field paths. Upstream: `fieldpath.Set`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet<'a> {
    /// The top-level nodes of the trie, sorted by path element. Each node contains at least one field of the set.
    nodes: Vec<FieldSetNode<'a>>,
}

/// A node of the trie: a path element, and the set of the paths that continue after it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldSetNode<'a> {
    element: PathElement<'a>,
    /// Whether the field at this node is itself in the set. Otherwise only fields below it are.
    is_member: bool,
    /// The fields below this node, relative to it.
    children: FieldSet<'a>,
}

impl<'a> FieldSet<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Appends a top-level path element and the fields below it. The element must be greater than all earlier top-level
    /// elements. `is_member` says whether the field at the element is itself in the set. Does nothing if neither this
    /// field nor a field below it is in the set.
    pub(super) fn push(&mut self, element: PathElement<'a>, is_member: bool, below: FieldSet<'a>) {
        if is_member || !below.is_empty() {
            debug_assert!(self.nodes.last().is_none_or(|it| it.element < element), "out of order");
            self.nodes.push(FieldSetNode { element, is_member, children: below });
        }
    }

    /// Adds the field at a path of field names, such as `["metadata", "name"]`.
    pub(super) fn insert(&mut self, path: &[&'a str]) {
        let [name, rest @ ..] = path else { return };
        let element = PathElement::Field((*name).into());
        let at = self.nodes.binary_search_by(|it| it.element.cmp(&element)).unwrap_or_else(|at| {
            self.nodes.insert(at, FieldSetNode { element, is_member: false, children: FieldSet::default() });
            at
        });
        self.nodes[at].is_member |= rest.is_empty();
        self.nodes[at].children.insert(rest);
    }

    /// Whether the set contains the top-level field at `element`.
    pub(super) fn contains(&self, element: &PathElement<'_>) -> bool {
        self.find_node(element).is_some_and(|it| it.is_member)
    }

    /// Returns the fields below the top-level path element `element`, relative to it. Returns `None` if there are none.
    pub(super) fn children(&self, element: &PathElement<'_>) -> Option<&FieldSet<'a>> {
        self.find_node(element).map(|it| &it.children).filter(|it| !it.is_empty())
    }

    /// Returns the top-level node of `element`, or `None` if the set has neither this field nor a field below it.
    fn find_node(&self, element: &PathElement<'_>) -> Option<&FieldSetNode<'a>> {
        let at = self.nodes.binary_search_by(|it| it.element.cmp(element)).ok()?;
        Some(&self.nodes[at])
    }

    /// Returns the fields that are in at least one of the sets. Each round halves the number of sets, so that the time
    /// is not quadratic.
    pub(super) fn union_of(mut sets: Vec<Self>) -> Self {
        while 1 < sets.len() {
            let pairs = sets.chunks(2);
            sets = pairs
                .map(|it| if let [one, other] = it { one.union(other) } else { it[0].clone() })
                .collect();
        }
        sets.pop().unwrap_or_default()
    }

    /// Returns the fields that are in at least one of the two sets.
    pub(super) fn union(&self, other: &Self) -> Self {
        self.zip_with(other, |left, right| match (left, right) {
            (Some(left), Some(right)) => {
                Some((left.is_member || right.is_member, left.children.union(&right.children)))
            }
            (Some(one), None) | (None, Some(one)) => Some((one.is_member, one.children.clone())),
            (None, None) => None,
        })
    }

    /// Returns the fields that are in both sets.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        self.zip_with(other, |left, right| {
            let (left, right) = (left?, right?);
            Some((left.is_member && right.is_member, left.children.intersection(&right.children)))
        })
    }

    /// Returns the fields of this set that are not in `other`. A field stays even if `other` contains a field above or
    /// below it.
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.zip_with(other, |left, right| match (left?, right) {
            (left, None) => Some((left.is_member, left.children.clone())),
            (left, Some(right)) => {
                Some((left.is_member && !right.is_member, left.children.difference(&right.children)))
            }
        })
    }

    /// Returns the fields of this set that are neither in `other` nor below a field in `other`.
    pub(super) fn recursive_difference(&self, other: &Self) -> Self {
        self.zip_with(other, |left, right| match (left?, right) {
            (left, None) => Some((left.is_member, left.children.clone())),
            (_, Some(right)) if right.is_member => None,
            (left, Some(right)) => {
                Some((left.is_member, left.children.recursive_difference(&right.children)))
            }
        })
    }

    /// Combines two sets. Calls the function `of` for each top-level path element, with the nodes of the element in the
    /// two sets. `of` returns whether the field at the element is in the result, and which fields below the element
    /// are. If `of` returns `None`, the result contains nothing at or below the element.
    fn zip_with(
        &self,
        other: &Self,
        of: impl Fn(Option<&FieldSetNode<'a>>, Option<&FieldSetNode<'a>>) -> Option<(bool, Self)>,
    ) -> Self {
        let mut all = Self::default();
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return all,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(left), Some(right)) => left.element.cmp(&right.element),
            };
            let left = if order.is_le() { left.next() } else { None };
            let right = if order.is_ge() { right.next() } else { None };
            let one = left.or(right).expect("one of the two is set");
            if let Some((is_member, below)) = of(left, right) {
                all.push(one.element.clone(), is_member, below);
            }
        }
    }

    /// Returns the set together with the parents of its fields. Only parents that are named fields of a type are added,
    /// not map entries or list items. `shape` is the type of the object, or `None` if it is unknown.
    /// Upstream: `EnsureNamedFieldsAreMembers`.
    pub(super) fn with_parent_fields(&self, shape: Option<Shape>) -> Self {
        let granularity = shape.map(Granularity::from_shape);
        let with_named = |it: &FieldSetNode<'a>| {
            let shape_below = granularity.and_then(|granularity| granularity.child_shape(&it.element));
            let is_named = match (&it.element, granularity) {
                (PathElement::Field(name), Some(granularity)) => granularity.has_field(name),
                _ => false,
            };
            FieldSetNode {
                element: it.element.clone(),
                is_member: it.is_member || is_named && !it.children.is_empty(),
                children: it.children.with_parent_fields(shape_below),
            }
        };
        Self { nodes: self.nodes.iter().map(with_named).collect() }
    }

    /// If the set contains fields below an atomic value, replaces them in the set with the path of the atomic value,
    /// because a manager owns such a value as a whole. `shape` is the type of the object. Upstream:
    /// `ReconcileFieldSetWithSchema`.
    pub(super) fn reconcile_with_schema(self, shape: Shape) -> Self {
        let granularity = Granularity::from_shape(shape);
        let fit = |it: FieldSetNode<'a>| match granularity.child_shape(&it.element) {
            Some(shape) if Granularity::from_shape(shape).is_atomic() && !it.children.is_empty() => {
                FieldSetNode { is_member: true, children: Self::default(), ..it }
            }
            Some(shape) => FieldSetNode { children: it.children.reconcile_with_schema(shape), ..it },
            None => it,
        };
        Self { nodes: self.nodes.into_iter().map(fit).collect() }
    }

    /// Returns the set with copies of all borrowed text and values.
    pub(super) fn into_owned(self) -> FieldSet<'static> {
        let own = |it: FieldSetNode<'_>| FieldSetNode {
            element: it.element.into_owned(),
            is_member: it.is_member,
            children: it.children.into_owned(),
        };
        FieldSet { nodes: self.nodes.into_iter().map(own).collect() }
    }

    /// Returns the paths of all fields in the set, in the format of conflict messages. At each level, the fields of the
    /// level come before the fields below them.
    pub(super) fn member_paths(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.collect_paths(&mut String::new(), &mut all);
        all
    }

    /// Adds the paths of all fields in the set to `all`, each with `prefix` in front of it.
    fn collect_paths(&self, prefix: &mut String, all: &mut Vec<String>) {
        all.extend(self.nodes.iter().filter(|it| it.is_member).map(|it| format!("{prefix}{}", it.element)));
        for node in &self.nodes {
            let end = prefix.len();
            write!(prefix, "{}", node.element).expect("writing to a String cannot fail");
            node.children.collect_paths(prefix, all);
            prefix.truncate(end);
        }
    }

    /// Encodes the set as `fieldsV1`.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        self.nodes
            .iter()
            .map(|it| {
                let mut below = it.children.to_json();
                if it.is_member && !below.is_empty() {
                    below.insert(".".to_owned(), Value::Object(Map::new()));
                }
                (it.element.to_fields_v1(), Value::Object(below))
            })
            .collect()
    }

    /// Decodes a set from `fieldsV1`. A name with an unknown type of path element is ignored, with the fields below it.
    /// Fails if another name is invalid, or if a value is neither an object nor null.
    pub(super) fn from_json(fields: &'a Value) -> Result<Self, InvalidPathElement> {
        let fields = match fields {
            Value::Null => return Ok(Self::default()),
            Value::Object(fields) => fields,
            _ => return Err(InvalidPathElement),
        };
        let mut nodes = Vec::with_capacity(fields.len());
        for (name, value) in fields.iter().filter(|(name, _)| *name != ".") {
            let Some(element) = PathElement::parse(name)? else { continue };
            let below = Self::from_json(value)?;
            let is_member = below.is_empty() || value.get(".").is_some();
            nodes.push(FieldSetNode { element, is_member, children: below });
        }
        nodes.sort_by(|left, right| left.element.cmp(&right.element));
        // Two spellings of the same element are one element; the later one wins.
        nodes.dedup_by(|later, kept| {
            let is_same = later.element == kept.element;
            if is_same {
                std::mem::swap(later, kept);
            }
            is_same
        });
        Ok(Self { nodes })
    }
}
