//! Sets of fields, as tries of the steps that lead to them.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::path::{BadElement, Element};
use super::typed::Grain;
use crate::types::Shape;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Set<'a> {
    /// Ordered, and none of them empty.
    nodes: Vec<Node<'a>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node<'a> {
    element: Element<'a>,
    /// Whether the field itself is in the set, and not only something below it.
    is_member: bool,
    below: Set<'a>,
}

impl<'a> Set<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds what comes after everything that is there already.
    pub(super) fn push(&mut self, element: Element<'a>, is_member: bool, below: Set<'a>) {
        if is_member || !below.is_empty() {
            debug_assert!(self.nodes.last().is_none_or(|it| it.element < element), "out of order");
            self.nodes.push(Node { element, is_member, below });
        }
    }

    /// Adds the field that these names lead to.
    pub(super) fn insert(&mut self, path: &[&'a str]) {
        let [name, rest @ ..] = path else { return };
        let element = Element::Field((*name).into());
        let at = self.nodes.binary_search_by(|it| it.element.cmp(&element)).unwrap_or_else(|at| {
            self.nodes.insert(at, Node { element, is_member: false, below: Set::default() });
            at
        });
        self.nodes[at].is_member |= rest.is_empty();
        self.nodes[at].below.insert(rest);
    }

    pub(super) fn has(&self, element: &Element<'_>) -> bool {
        self.find(element).is_some_and(|it| it.is_member)
    }

    /// What the set has below this step.
    pub(super) fn below(&self, element: &Element<'_>) -> Option<&Set<'a>> {
        self.find(element).map(|it| &it.below).filter(|it| !it.is_empty())
    }

    fn find(&self, element: &Element<'_>) -> Option<&Node<'a>> {
        let at = self.nodes.binary_search_by(|it| it.element.cmp(element)).ok()?;
        Some(&self.nodes[at])
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        self.combine(other, |left, right| match (left, right) {
            (Some(left), Some(right)) => {
                Some((left.is_member || right.is_member, left.below.union(&right.below)))
            }
            (Some(one), None) | (None, Some(one)) => Some((one.is_member, one.below.clone())),
            (None, None) => None,
        })
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |left, right| {
            let (left, right) = (left?, right?);
            Some((left.is_member && right.is_member, left.below.intersection(&right.below)))
        })
    }

    /// A field stays although one below it goes, and goes although one below it stays.
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.combine(other, |left, right| match (left?, right) {
            (left, None) => Some((left.is_member, left.below.clone())),
            (left, Some(right)) => {
                Some((left.is_member && !right.is_member, left.below.difference(&right.below)))
            }
        })
    }

    /// With each field of `other` goes all that is below it.
    pub(super) fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, |left, right| match (left?, right) {
            (left, None) => Some((left.is_member, left.below.clone())),
            (_, Some(right)) if right.is_member => None,
            (left, Some(right)) => Some((left.is_member, left.below.recursive_difference(&right.below))),
        })
    }

    /// Walks both in order, and keeps what `of` says of each step.
    fn combine(
        &self,
        other: &Self,
        of: impl Fn(Option<&Node<'a>>, Option<&Node<'a>>) -> Option<(bool, Self)>,
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
            let one = left.or(right).expect("one of the two is there");
            if let Some((is_member, below)) = of(left, right) {
                all.push(one.element.clone(), is_member, below);
            }
        }
    }

    /// With every named field that leads to a member as a member too. Entries of maps and items of lists are
    /// not named by the type, so they are left as they are.
    pub(super) fn with_named_fields(&self, shape: Option<Shape>) -> Self {
        let grain = shape.map(Grain::of);
        let with_named = |it: &Node<'a>| {
            let shape_below = grain.and_then(|grain| grain.below(&it.element));
            let is_named = match (&it.element, grain) {
                (Element::Field(name), Some(grain)) => grain.names(name),
                _ => false,
            };
            Node {
                element: it.element.clone(),
                is_member: it.is_member || is_named && !it.below.is_empty(),
                below: it.below.with_named_fields(shape_below),
            }
        };
        Self { nodes: self.nodes.iter().map(with_named).collect() }
    }

    /// Where the type owns a value as a whole, an entry below it becomes one of the value.
    pub(super) fn fitted(self, shape: Shape) -> Self {
        let grain = Grain::of(shape);
        let fit = |it: Node<'a>| match grain.below(&it.element) {
            Some(shape) if Grain::of(shape).is_whole() && !it.below.is_empty() => {
                Node { is_member: true, below: Self::default(), ..it }
            }
            Some(shape) => Node { below: it.below.fitted(shape), ..it },
            None => it,
        };
        Self { nodes: self.nodes.into_iter().map(fit).collect() }
    }

    pub(super) fn into_owned(self) -> Set<'static> {
        let own = |it: Node<'_>| Node {
            element: it.element.into_owned(),
            is_member: it.is_member,
            below: it.below.into_owned(),
        };
        Set { nodes: self.nodes.into_iter().map(own).collect() }
    }

    /// Every member's path as conflicts name it: what is nearer to the top first.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.write_paths(&mut String::new(), &mut all);
        all
    }

    fn write_paths(&self, prefix: &mut String, all: &mut Vec<String>) {
        all.extend(self.nodes.iter().filter(|it| it.is_member).map(|it| format!("{prefix}{}", it.element)));
        for node in &self.nodes {
            let end = prefix.len();
            write!(prefix, "{}", node.element).expect("a string takes everything");
            node.below.write_paths(prefix, all);
            prefix.truncate(end);
        }
    }

    /// `fieldsV1`.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        self.nodes
            .iter()
            .map(|it| {
                let mut below = it.below.to_json();
                if it.is_member && !below.is_empty() {
                    below.insert(".".to_owned(), Value::Object(Map::new()));
                }
                (it.element.text(), Value::Object(below))
            })
            .collect()
    }

    pub(super) fn of_json(fields: &'a Value) -> Result<Self, BadElement> {
        let fields = match fields {
            Value::Null => return Ok(Self::default()),
            Value::Object(fields) => fields,
            _ => return Err(BadElement),
        };
        let mut nodes = Vec::with_capacity(fields.len());
        for (name, value) in fields.iter().filter(|(name, _)| *name != ".") {
            let Some(element) = Element::parse(name)? else { continue };
            let below = Self::of_json(value)?;
            let is_member = below.is_empty() || value.get(".").is_some();
            nodes.push(Node { element, is_member, below });
        }
        nodes.sort_by(|left, right| left.element.cmp(&right.element));
        // Two ways to write the same step are one step; the later one counts.
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
