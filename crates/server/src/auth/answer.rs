//! Reviews and token requests, as the table of kinds takes them.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{restrict, review, token_request};
use crate::context::Context;
use crate::http::Api;
use crate::refusal::Refusal;
use crate::route::Target;

type Answered<'a> = BoxFuture<'a, Result<Value, Refusal>>;

pub(crate) fn self_review<'a>(
    _: &'a Api,
    context: &'a Context,
    target: &'a Target,
    review: Value,
) -> Answered<'a> {
    async move { Ok(review::of_self(context, typed(target, review))) }.boxed()
}

pub(crate) fn token_review<'a>(
    api: &'a Api,
    context: &'a Context,
    target: &'a Target,
    review: Value,
) -> Answered<'a> {
    async move { review::of_token(&api.registry, context, typed(target, review)) }.boxed()
}

pub(crate) fn own_access_review<'a>(
    api: &'a Api,
    context: &'a Context,
    target: &'a Target,
    review: Value,
) -> Answered<'a> {
    async move { review::of_own_access(&api.registry, context, target, typed(target, review)) }.boxed()
}

pub(crate) fn access_review<'a>(
    api: &'a Api,
    _: &'a Context,
    target: &'a Target,
    review: Value,
) -> Answered<'a> {
    async move { review::of_access(&api.registry, target, typed(target, review)) }.boxed()
}

pub(crate) fn own_rules_review<'a>(
    api: &'a Api,
    context: &'a Context,
    target: &'a Target,
    review: Value,
) -> Answered<'a> {
    async move { review::of_own_rules(&api.registry, context, typed(target, review)) }.boxed()
}

pub(crate) fn token<'a>(
    api: &'a Api,
    context: &'a Context,
    target: &'a Target,
    request: Value,
) -> Answered<'a> {
    async move {
        let write = restrict::Write::Create { new: &request };
        restrict::check(&api.registry, &context.user, target, "token", write)?;
        token_request::answer(&api.registry, context, target, request)
    }
    .boxed()
}

fn typed(target: &Target, mut review: Value) -> Value {
    review["apiVersion"] = json!(target.kind.api_version());
    review["kind"] = json!(target.kind.kind);
    review
}
