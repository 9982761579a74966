//! Requests of the replicas of the DaemonSet controller: how an API server handles them, and their responses.

use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use muster_engine::controller::{CallError, Controller as _, Outcome};
use muster_engine::daemonset::DaemonSetCall;
use muster_engine::daemonset::execution::{PlannedCall, Response};
use muster_engine::daemonset::facts::{Kind, Set, WatchedObject};
use muster_engine::daemonset::manifest::{self, Binding};
use muster_engine::daemonset::plan::{Claim, RevisionWrite, RolloutWrite};
use muster_engine::daemonset::progressive::verdict::RevisionVerdict;
use serde_json::{Value, json};

use super::REQUEST_TIMEOUT;
use crate::faults::RequestFault;
use crate::invariants::DecidedPlan;
use crate::lagging_server::{LaggingServer, ReadBarrier, ServerId};
use crate::server::{Actor, RequestHandler};
use crate::world::servers::RequestAdmission;
use crate::world::{SimTask, World};

/// A request of a replica, from its sending until its response is delivered.
#[derive(Debug)]
pub(super) struct RequestInFlight {
    call: DaemonSetCall,
    sent_at: Time,
    /// The API server to which the request was sent.
    server: ServerId,
    /// The read barrier of the request. `None` until the request has reached the API server.
    barrier: Option<ReadBarrier>,
    /// The response that the lagging server sends when its state contains the write, and the revision of the write.
    unacknowledged: Option<(Response, u64)>,
    /// The response as a decoded value for the checks, and as the outcome that the controller gets. `None` until the
    /// API server has handled the request.
    response: Option<(Response, Outcome)>,
    /// The plan that caused the request.
    decided: DecidedPlan,
}

impl RequestInFlight {
    /// Returns a request that has not reached its server yet.
    pub(super) fn new(call: DaemonSetCall, sent_at: Time, server: ServerId, decided: DecidedPlan) -> Self {
        Self { call, sent_at, server, barrier: None, unacknowledged: None, response: None, decided }
    }
}

impl World {
    /// Handles a request on the simulated API server, even if the replica that sent it has crashed and is not restarted
    /// yet. `at` is the index of the request in `Replica::calls`.
    pub fn handle_replica_request(&mut self, index: usize, process_number: u64, at: usize) {
        // The replica may have crashed and started again, with other requests.
        let request = self.replicas[index].calls.get(at);
        if request.is_none_or(|it| it.decided.process_number != process_number) {
            return;
        }
        let is_read = matches!(
            self.replicas[index].calls[at].call.call,
            PlannedCall::ReadSet | PlannedCall::ListPods | PlannedCall::ReadRevision { .. }
        );
        let (DaemonSetCall { set, call, .. }, sent_at, server, decided) = {
            let it = &self.replicas[index].calls[at];
            (it.call.clone(), it.sent_at, it.server, it.decided.clone())
        };
        let key = set.key.clone();
        let too_late = sent_at + REQUEST_TIMEOUT < self.now || self.now < self.replicas[index].cut_off_until;
        let barrier = self.read_barrier();
        let barrier = *self.replicas[index].calls[at].barrier.get_or_insert(barrier);
        let written = written_object(&set, &call, self.settings.binding).filter(|_| !is_read);
        let task = SimTask::HandleRequest { replica: index, process_number, call: at };
        let admission = if too_late {
            RequestAdmission::Unreachable
        } else {
            self.admit_request(server, barrier, written.as_ref(), task)
        };
        if admission == RequestAdmission::Waits {
            return;
        }
        let fault = self.next_request_fault(&call, is_read);
        let outcome = match fault {
            _ if admission == RequestAdmission::Unreachable => Response::Refused(CallError::NoAnswer),
            Some(RequestFault::CrashBefore) => {
                self.crash_replica(index);
                return;
            }
            Some(RequestFault::LostNotApplied) => Response::Refused(CallError::NoAnswer),
            Some(RequestFault::Conflict) => Response::Refused(CallError::Conflict),
            Some(RequestFault::TooManyRequests) => {
                Response::Refused(CallError::TooManyRequests { retry_after: Some(Duration::from_secs(1)) })
            }
            Some(RequestFault::Server) => Response::Refused(CallError::Server("etcd is away".into())),
            Some(RequestFault::Forbidden) => Response::Refused(CallError::Forbidden("denied".into())),
            Some(RequestFault::Invalid) => Response::Refused(CallError::Invalid("invalid".into())),
            Some(RequestFault::LostApplied | RequestFault::CrashAfter | RequestFault::ServerApplied)
            | None => {
                let before = self.server.revision();
                let body = manifest::call_body(&set, &call, Binding::Scheduler).unwrap_or_default();
                self.checks.check_request(&self.server, &decided, &set, &call, &body, self.now);
                let outcome = self.apply_request(index, server, &key, &set, &call);
                self.trace.add_line(self.now, || {
                    format!("replica {index} {} -> {}", describe_call(&call), describe_response(&outcome))
                });
                self.checks.check_request_outcome(
                    &self.server,
                    &decided,
                    &set,
                    &call,
                    &outcome,
                    before,
                    self.now,
                );
                let written = self.server.revision();
                if fault.is_none() && server == ServerId::Lagging && before < written {
                    self.replicas[index].calls[at].unacknowledged = Some((outcome, written));
                    let task = SimTask::AcknowledgeWrite { replica: index, process_number, call: at };
                    return self.wait_for_revision(written, task);
                }
                outcome
            }
        };
        self.respond(index, process_number, at, outcome, fault);
    }

    /// Responds to a write that the lagging server has committed, when the state of this server contains the write. If
    /// the server was killed before, or the response comes too late, there is no response. `at` is the index of the
    /// request in `Replica::calls`.
    pub fn acknowledge_write(&mut self, index: usize, process_number: u64, at: usize) {
        let replica = &mut self.replicas[index];
        if replica.process_number != process_number {
            return;
        }
        let is_late = replica.calls[at].sent_at + REQUEST_TIMEOUT < self.now;
        let Some((outcome, written)) = replica.calls[at].unacknowledged.take() else { return };
        let outcome = if is_late || !self.is_server_up(ServerId::Lagging) {
            Response::Refused(CallError::NoAnswer)
        } else {
            self.checks.on_write_acknowledged(written, self.visible_revision(ServerId::Lagging));
            outcome
        };
        self.respond(index, process_number, at, outcome, None);
    }

    /// Schedules the delivery of the response to a request. `outcome` is what the server did. `fault` is the fault of
    /// the request. The fault may crash the replica, so that there is no response, or replace the response by a timeout
    /// or a server error. `at` is the index of the request in `Replica::calls`.
    fn respond(
        &mut self,
        index: usize,
        process_number: u64,
        at: usize,
        outcome: Response,
        fault: Option<RequestFault>,
    ) {
        let request = &self.replicas[index].calls[at];
        let (sent_at, server, decided) = (request.sent_at, request.server, request.decided.clone());
        let DaemonSetCall { set, call, .. } = request.call.clone();
        self.checks.on_response(&decided, &call, &outcome, fault);
        let lost = matches!(fault, Some(RequestFault::LostApplied))
            || outcome == Response::Refused(CallError::NoAnswer);
        if fault == Some(RequestFault::CrashAfter) {
            self.crash_replica(index);
            return;
        }
        let delay = if lost {
            (sent_at + REQUEST_TIMEOUT + Duration::from_millis(500)).since(self.now)
        } else {
            self.random_delay()
        };
        let response = match fault {
            _ if lost => Response::Refused(CallError::NoAnswer),
            Some(RequestFault::ServerApplied) => {
                Response::Refused(CallError::Server("request timed out".into()))
            }
            _ => outcome,
        };
        let sent = self.encode_response(server, &set.key, &call, &response);
        self.replicas[index].calls[at].response = Some((response, sent));
        self.schedule_after(delay, SimTask::DeliverResponse { replica: index, process_number, call: at });
    }

    /// Returns the fault that the next request gets, or `None` if it gets no fault. Counts the request in
    /// [`World::writes`], unless it only reads.
    fn next_request_fault(&mut self, call: &PlannedCall, is_read: bool) -> Option<RequestFault> {
        let fault = if is_read {
            self.fault_rates.random_request_fault(&mut self.rng)
        } else {
            self.writes += 1;
            match self.injected_fault.write {
                Some((at, fault)) if at == self.writes => Some(fault),
                _ => {
                    let scripted = self.next_fault.take_if(|(trigger, _)| trigger.selects(call));
                    let scripted = scripted.map(|(_, fault)| fault);
                    scripted.or_else(|| self.fault_rates.random_request_fault(&mut self.rng))
                }
            }
        };
        let possible_for_read = !matches!(
            fault,
            Some(
                RequestFault::Conflict
                    | RequestFault::Invalid
                    | RequestFault::LostApplied
                    | RequestFault::ServerApplied
            )
        );
        fault.filter(|_| !is_read || possible_for_read)
    }

    /// Delivers the response to a request, and continues the plan of the request. `at` is the index of the request in
    /// `Replica::calls`.
    pub fn deliver_response(&mut self, index: usize, process_number: u64, at: usize) {
        if !self.admit_task(index, process_number, || SimTask::DeliverResponse {
            replica: index,
            process_number,
            call: at,
        }) {
            return;
        }
        let replica = &mut self.replicas[index];
        let clock = replica.local_time(self.now);
        let request = &mut replica.calls[at];
        let call = request.call.clone();
        let key = call.set.key.clone();
        let Some((response, outcome)) = request.response.take() else { return };
        let Some(decided) = replica.executing.get_mut(&key) else { return };
        if let Response::Set(set) = &response {
            decided.rechecked = Some((set.uid.clone(), set.deleting));
        }
        let done = replica.controller.apply_outcome(&call, outcome, clock);
        let is_executing = replica.controller.is_executing(&key);
        let calls = if is_executing { replica.controller.reconcile(&key, clock).calls } else { Vec::new() };
        self.count_events(&done.events);
        self.continue_execution(index, &key, calls);
    }

    /// Encodes a response of the simulated API server as the outcome that the controller decodes.
    fn encode_response(
        &self,
        server: ServerId,
        key: &ObjectKey,
        call: &PlannedCall,
        response: &Response,
    ) -> Outcome {
        let object = |kind: Kind, key: &ObjectKey| match self.lagging.as_ref() {
            Some(lagging) if server == ServerId::Lagging => {
                let object = lagging.cache().object(kind, key);
                Outcome::Done(object.map(|it| it.to_string().into_bytes()).unwrap_or_default())
            }
            _ => Outcome::Done(self.server.object_json(kind, key).to_vec()),
        };
        let body: Value = match (response, call) {
            (Response::Refused(error), _) => return Outcome::Refused(error.clone()),
            (Response::Set(_), _) => return object(Kind::Sets, key),
            (Response::Revision(_), PlannedCall::ReadRevision { name }) => {
                return object(Kind::Revisions, &ObjectKey::new(key.namespace.clone(), name.clone()));
            }
            (Response::Wrote { name, resource_version }, _) => {
                json!({"metadata": {"name": name, "resourceVersion": resource_version.to_string()}})
            }
            (Response::Pods(pods), _) => {
                let pods = pods.iter().map(|(uid, resource_version, is_deleting)| {
                    let deletion = is_deleting.then_some("1970-01-01T00:00:00Z");
                    let version = resource_version.to_string();
                    json!({"metadata": {"uid": uid, "resourceVersion": version, "deletionTimestamp": deletion}})
                });
                json!({"items": pods.collect::<Vec<_>>()})
            }
            (Response::Deleted | Response::Revision(_), _) => json!({}),
        };
        Outcome::Done(body.to_string().into_bytes())
    }

    /// Executes a request on a simulated API server, with the body that the controller would send.
    fn apply_request(
        &mut self,
        index: usize,
        server: ServerId,
        key: &ObjectKey,
        set: &Set,
        call: &PlannedCall,
    ) -> Response {
        let actor = Actor::Controller(index);
        let body = manifest::call_body(set, call, self.settings.binding).unwrap_or_default();
        let namespace = key.namespace.clone();
        let revision = self.visible_revision(server);
        let lagging = self.lagging.as_ref().filter(|_| server == ServerId::Lagging);
        let cache = lagging.map(LaggingServer::cache);
        let mut handler = RequestHandler { store: &mut self.server, cache };
        let wrote = |handler: &RequestHandler<'_>, kind: Kind, key: &ObjectKey| Response::Wrote {
            name: key.name.clone(),
            resource_version: handler.store.resource_version(kind, key),
        };
        let result = match call {
            PlannedCall::ReadSet => match handler.store.object_at_revision(Kind::Sets, key, revision) {
                Some(WatchedObject::Set(it)) => return Response::Set(it.clone()),
                _ => Err(CallError::NotFound),
            },
            PlannedCall::ListPods => {
                let pods = handler.store.list_at_revision(Kind::Pods, revision).into_iter();
                let pods = pods.filter_map(|it| match it {
                    WatchedObject::Pod(it) => Some(it),
                    _ => None,
                });
                let pods =
                    pods.filter(|it| it.key.namespace == namespace && set.selector.matches(&it.labels));
                return Response::Pods(
                    pods.map(|it| (it.uid.clone(), it.resource_version, it.deleting)).collect(),
                );
            }
            PlannedCall::ReadRevision { name } => {
                let key = ObjectKey::new(namespace.clone(), name.clone());
                match handler.object(Kind::Revisions, &key) {
                    None => Err(CallError::NotFound),
                    Some(_) => match handler.store.object_at_revision(Kind::Revisions, &key, revision) {
                        Some(WatchedObject::Revision(it)) => return Response::Revision(Some(it.clone())),
                        _ => return Response::Revision(None),
                    },
                }
            }
            PlannedCall::Claim(Claim::AdoptPod(it) | Claim::ReleasePod(it))
            | PlannedCall::RelabelPod { pod: it, .. } => {
                let written = handler.patch(Kind::Pods, &it.key, &body, actor);
                written.map(|_| wrote(&handler, Kind::Pods, &it.key))
            }
            PlannedCall::Claim(Claim::AdoptRevision(it) | Claim::ReleaseRevision(it))
            | PlannedCall::WriteRevision(
                RevisionWrite::Renumber { revision: it, .. }
                | RevisionWrite::Label { revision: it }
                | RevisionWrite::StoreVerdict { revision: it, .. },
            ) => {
                let written = handler.patch(Kind::Revisions, &it.key, &body, actor);
                written.map(|_| wrote(&handler, Kind::Revisions, &it.key))
            }
            PlannedCall::WriteRevision(RevisionWrite::Create { .. }) => {
                let created = handler.create(Kind::Revisions, body, actor);
                created.map(|key| wrote(&handler, Kind::Revisions, &key))
            }
            PlannedCall::CreatePod { .. } => {
                let created = handler.create(Kind::Pods, body, actor);
                created.map(|key| wrote(&handler, Kind::Pods, &key))
            }
            PlannedCall::DeletePod { pod, .. } => {
                let guards = &body["preconditions"];
                let version = guards["resourceVersion"].as_str().and_then(|it| it.parse().ok());
                handler
                    .delete(Kind::Pods, &pod.key, guards["uid"].as_str(), version, false, actor)
                    .map(|()| Response::Deleted)
            }
            PlannedCall::EvictPod { pod, .. } => {
                let guards = &body["deleteOptions"]["preconditions"];
                let version = guards["resourceVersion"].as_str().and_then(|it| it.parse().ok());
                handler
                    .delete(Kind::Pods, &pod.key, guards["uid"].as_str(), version, false, actor)
                    .map(|()| Response::Deleted)
            }
            PlannedCall::DeleteRevision { revision } => {
                let uid = body["preconditions"]["uid"].as_str();
                handler
                    .delete(Kind::Revisions, &revision.key, uid, None, false, actor)
                    .map(|()| Response::Deleted)
            }
            PlannedCall::PutStatus { of, .. } => {
                let written = handler.put_status(Kind::Sets, &of.key, &body, actor);
                written.map(|_| wrote(&handler, Kind::Sets, &of.key))
            }
            // Only assist mode applies conditions, and no simulated controller runs in it.
            PlannedCall::ApplyConditions { .. } => {
                Err(CallError::Invalid("apply is not simulated".to_owned()))
            }
            PlannedCall::WriteRollout(RolloutWrite::Create) => {
                let created = handler.create(Kind::Rollouts, body, actor);
                created.map(|key| wrote(&handler, Kind::Rollouts, &key))
            }
            PlannedCall::WriteRollout(RolloutWrite::PutStatus { record, .. }) => {
                let written = handler.put_status(Kind::Rollouts, &record.key, &body, actor);
                written.map(|_| wrote(&handler, Kind::Rollouts, &record.key))
            }
        };
        result.unwrap_or_else(Response::Refused)
    }
}

/// Returns the object that a call writes, or `None` if the call reads, or if the server generates the name of the
/// object.
fn written_object(set: &Set, call: &PlannedCall, binding: Binding) -> Option<(Kind, ObjectKey)> {
    let target = manifest::call_target(set, call);
    let name = target.name.map(|it| it.to_string()).or_else(|| {
        let body = manifest::call_body(set, call, binding)?;
        Some(body["metadata"]["name"].as_str()?.to_owned())
    })?;
    Some((target.kind, ObjectKey::new(set.key.namespace.clone(), name)))
}

/// Formats a call for the trace.
fn describe_call(call: &PlannedCall) -> String {
    match call {
        PlannedCall::ReadSet => "reads the set".to_owned(),
        PlannedCall::ListPods => "lists the set's pods".to_owned(),
        PlannedCall::ReadRevision { name } => format!("reads revision {name}"),
        PlannedCall::Claim(Claim::AdoptPod(it)) => format!("adopts {}", it.key.name),
        PlannedCall::Claim(Claim::ReleasePod(it)) => format!("releases {}", it.key.name),
        PlannedCall::Claim(Claim::AdoptRevision(it)) => format!("adopts {}", it.key.name),
        PlannedCall::Claim(Claim::ReleaseRevision(it)) => format!("releases {}", it.key.name),
        PlannedCall::WriteRevision(RevisionWrite::Create { name, number, .. }) => {
            format!("creates revision {name} number {number}")
        }
        PlannedCall::WriteRevision(RevisionWrite::Renumber { revision, number }) => {
            format!("renumbers {} to {number}", revision.key.name)
        }
        PlannedCall::WriteRevision(RevisionWrite::Label { revision }) => {
            format!("labels {}", revision.key.name)
        }
        PlannedCall::RelabelPod { pod, hash } => format!("relabels {} to {hash}", pod.key.name),
        PlannedCall::DeletePod { pod, why } => format!("deletes {}: {why}", pod.key.name),
        PlannedCall::EvictPod { pod, why } => format!("evicts {}: {why}", pod.key.name),
        PlannedCall::WriteRevision(RevisionWrite::StoreVerdict { revision, verdict, reason, .. }) => {
            let verdict = verdict.map_or("none", RevisionVerdict::as_str);
            format!("judges revision {}: {verdict} ({reason})", revision.key.name)
        }
        PlannedCall::ApplyConditions { conditions } => format!("applies {} conditions", conditions.len()),
        PlannedCall::WriteRollout(RolloutWrite::Create) => "creates the rollout".to_owned(),
        PlannedCall::WriteRollout(RolloutWrite::PutStatus { status, .. }) => {
            format!("writes the rollout's status: {status}")
        }
        PlannedCall::CreatePod { node, hash, why, .. } => format!("creates a pod of {hash} on {node}: {why}"),
        PlannedCall::DeleteRevision { revision } => format!("deletes revision {}", revision.key.name),
        PlannedCall::PutStatus { status, .. } => {
            let it = status.counts;
            let conditions: Vec<String> = status
                .conditions
                .iter()
                .map(|it| format!("{}={} {}", it.kind.as_str(), it.status.as_str(), it.reason))
                .collect();
            format!(
                "writes status desired={} current={} ready={} updated={} available={} observed={} {conditions:?}",
                it.desired, it.current, it.ready, it.updated, it.available, status.observed_generation
            )
        }
    }
}

/// Formats a response for the trace.
fn describe_response(outcome: &Response) -> String {
    match outcome {
        Response::Wrote { name, resource_version } => format!("{name} r{resource_version}"),
        Response::Deleted => "deleted".to_owned(),
        Response::Set(it) => {
            format!("r{}{}", it.resource_version, if it.deleting { ", deleting" } else { "" })
        }
        Response::Revision(it) => {
            it.as_ref().map_or_else(|| "another owner's".to_owned(), |it| format!("r{}", it.resource_version))
        }
        Response::Pods(pods) => format!("{} pods", pods.len()),
        Response::Refused(refusal) => format!("rejected: {refusal}"),
    }
}
