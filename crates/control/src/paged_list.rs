//! Pagination of list requests (`limit` and `continue`): the URL query of a page, and the decoded response.

use muster_api::meta_v1::ListMeta;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Number of objects in one page of a list. A page of pods has one or two megabytes of JSON.
const PAGE_SIZE: usize = 500;

/// The response with one page of a list. The objects stay JSON text.
#[derive(Deserialize)]
pub(crate) struct Page<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

impl<'a> Page<'a> {
    /// Returns the JSON of each object of the page.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &'a [u8]> {
        self.items.iter().flatten().map(|it| it.get().as_bytes())
    }

    /// Returns the resource version of the list, or zero if it is not a number.
    pub(crate) fn resource_version(&self) -> u64 {
        self.metadata.resource_version.parse().unwrap_or_default()
    }

    /// Returns the `continue` token with which the next page is requested. `None` on the last page.
    pub(crate) fn next_page_token(self) -> Option<String> {
        Some(self.metadata.r#continue).filter(|it| !it.is_empty())
    }
}

/// Returns the URL query that requests a page. `selector` is the name `labelSelector` or `fieldSelector`, with its
/// value. `page_token` is the `continue` token, `None` for the first page.
pub(crate) fn page_query(selector: Option<(&str, &str)>, page_token: Option<&str>) -> String {
    let mut query = form_urlencoded::Serializer::new(format!("limit={PAGE_SIZE}"));
    for (name, value) in selector.into_iter().chain(page_token.map(|it| ("continue", it))) {
        query.append_pair(name, value);
    }
    query.finish()
}
