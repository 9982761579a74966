//! Reads a range of keys in pages.

use bytes::Bytes;
use tokio::time::Instant;

use crate::api::{EtcdApi, EtcdError, RETRY_DELAY, RETRY_TIMEOUT};
use crate::keyspace::KeyRange;
use crate::proto::{KeyValue, RangeRequest};

/// The rest of a range of keys that is read in pages. All pages are read at the same etcd revision.
#[derive(Debug)]
pub(crate) struct PagedRange {
    /// The request for the next page. `None` after the last page.
    next: Option<RangeRequest>,
    /// Maximum number of keys in a page.
    page_keys_max: i64,
}

impl PagedRange {
    /// Begins to read a range at an etcd revision. With `keys_only`, the values are not read.
    pub(crate) fn new(range: KeyRange, revision: i64, keys_only: bool, page_keys_max: i64) -> Self {
        let (key, range_end, limit) = (range.start, range.end, page_keys_max);
        let first = RangeRequest { key, range_end, limit, revision, keys_only, ..RangeRequest::default() };
        Self { next: Some(first), page_keys_max }
    }

    /// Reads the next page. Returns `None` after the last page or after an error. If no member responds or can serve
    /// requests, repeats the request for up to [`RETRY_TIMEOUT`].
    ///
    /// A page with large values may take longer than the timeout of a call. So after a request without a response, a
    /// smaller page is requested. Later pages become larger again.
    pub(crate) async fn next(&mut self, api: &impl EtcdApi) -> Option<Result<Vec<KeyValue>, EtcdError>> {
        let mut request = self.next.take()?;
        let deadline = Instant::now() + RETRY_TIMEOUT;
        let page = loop {
            match api.range(request.clone()).await {
                Ok(page) => break page,
                Err(error) if !error.is_final() && Instant::now() < deadline => {
                    if matches!(error, EtcdError::NoResponse { .. }) {
                        request.limit = (request.limit / 4).max(1);
                    }
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(error) => return Some(Err(error)),
            }
        };
        if let Some(last) = page.kvs.last().filter(|_| page.more) {
            // The next page begins with the key after the last one.
            let key: Bytes = [&last.key[..], &[0]].concat().into();
            let limit = (request.limit * 2).min(self.page_keys_max);
            self.next = Some(RangeRequest { key, limit, ..request });
        }
        Some(Ok(page.kvs))
    }
}
