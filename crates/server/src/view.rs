//! How a client wants to see objects: whole, their metadata, or as rows of a table. What is shown is in the version
//! that the client asked for; the cells of a table are read off the stored one.

use bytes::Bytes;
use jiff::Timestamp;
use muster_store::Revision;
use serde_json::{Value, json};

use crate::convert;
use crate::kinds::Kind;
use crate::object;
use crate::refusal::Refusal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Whole,
    Metadata,
    Table(InRow),
}

/// What each row of a table carries besides its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InRow {
    Nothing,
    Metadata,
    Whole,
}

impl View {
    /// The first representation in `accept` that we have. Protobuf is passed over: clients that prefer
    /// it name JSON too.
    pub(crate) fn of(accept: &str, include_object: &str) -> Result<Self, Refusal> {
        let in_row = match include_object {
            "None" => InRow::Nothing,
            "Object" => InRow::Whole,
            _ => InRow::Metadata,
        };
        let view_of = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            if !matches!(parts.next()?, "application/json" | "application/*" | "*/*" | "") {
                return None;
            }
            match parts.find_map(|it| it.strip_prefix("as=")) {
                None => Some(Self::Whole),
                Some("Table") => Some(Self::Table(in_row)),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Self::Metadata),
                Some(_) => None,
            }
        };
        accept.split(',').find_map(view_of).ok_or_else(Refusal::not_acceptable)
    }

    /// One object, as its own answer or as that of a watch event.
    pub(crate) fn of_object(self, kind: &'static Kind, object: Value, now: Timestamp) -> Value {
        match self {
            Self::Whole => convert::outward_value(kind, object),
            Self::Metadata => metadata_only(object),
            Self::Table(in_row) => {
                let version = object["metadata"]["resourceVersion"].clone();
                table(kind, [object].into_iter(), in_row, &version, now)
            }
        }
    }

    pub(crate) fn of_list(
        self,
        kind: &'static Kind,
        objects: &[Bytes],
        revision: Revision,
        now: Timestamp,
    ) -> Bytes {
        let values = || objects.iter().map(|it| object::parse(it));
        match self {
            // Each object was serialised when it was written; once is enough.
            Self::Whole => {
                let head = format!(
                    r#"{{"apiVersion":"{}","kind":"{}List","metadata":{{"resourceVersion":"{revision}"}},"items":["#,
                    kind.api_version(),
                    kind.kind
                );
                let mut list =
                    Vec::with_capacity(head.len() + objects.iter().map(|it| it.len() + 1).sum::<usize>() + 2);
                list.extend_from_slice(head.as_bytes());
                for (at, object) in objects.iter().enumerate() {
                    if at != 0 {
                        list.push(b',');
                    }
                    list.extend_from_slice(&convert::outward(kind, object.clone()));
                }
                list.extend_from_slice(b"]}");
                list.into()
            }
            Self::Metadata => object::bytes(&json!({
                "apiVersion": "meta.k8s.io/v1",
                "kind": "PartialObjectMetadataList",
                "metadata": {"resourceVersion": revision.to_string()},
                "items": values().map(metadata_only).collect::<Vec<_>>(),
            })),
            Self::Table(in_row) => {
                object::bytes(&table(kind, values(), in_row, &json!(revision.to_string()), now))
            }
        }
    }
}

fn metadata_only(mut object: Value) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": object["metadata"].take(),
    })
}

fn table(
    kind: &'static Kind,
    objects: impl Iterator<Item = Value>,
    in_row: InRow,
    version: &Value,
    now: Timestamp,
) -> Value {
    let columns: Vec<_> = kind
        .columns
        .iter()
        .map(|it| {
            json!({
                "name": it.name,
                "type": it.cells,
                "format": it.format(),
                "description": it.description(),
                "priority": i32::from(it.wide),
            })
        })
        .collect();
    let row = |object: Value| {
        let cells: Vec<_> = kind.columns.iter().map(|it| (it.cell)(&object, now)).collect();
        match in_row {
            InRow::Nothing => json!({"cells": cells}),
            InRow::Metadata => json!({"cells": cells, "object": metadata_only(object)}),
            InRow::Whole => json!({"cells": cells, "object": convert::outward_value(kind, object)}),
        }
    };
    json!({
        "apiVersion": "meta.k8s.io/v1",
        "kind": "Table",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": columns,
        "rows": objects.map(row).collect::<Vec<_>>(),
    })
}
