//! Executes the steps of the built-in controllers, and delivers watch events to them.

use std::time::Duration;

use muster_engine::daemonset::facts::Kind;

use super::{SimTask, World};
use crate::controllers::{ControllerStep, SimController, StepContext, WatchSource};
use crate::lagging_server::ServerId;

impl World {
    /// Executes one step of a built-in controller. While the controller is switched off, the step is postponed.
    /// Otherwise it is dropped if the process that it was scheduled for has crashed, unless it is `Start`, which begins
    /// a new process.
    pub fn step_controller(&mut self, controller: SimController, process_number: u64, step: ControllerStep) {
        let runs = match controller {
            SimController::GarbageCollector => self.garbage_collector_runs,
            SimController::NodeLifecycle => true,
            SimController::Scheduler => self.scheduler_runs,
        };
        if !runs {
            return self.schedule_after(
                Duration::from_secs(1),
                SimTask::ControllerStep { controller, process_number, step },
            );
        }
        let Some(mut process) = self.controllers.remove(&controller) else { return };
        if process.process_number() == process_number || step == ControllerStep::Start {
            if step == ControllerStep::Start && !self.is_server_up(process.server()) {
                process.set_server(process.server().other());
            }
            let mut context = StepContext {
                now: self.now,
                server: &mut self.server,
                lagging: self.lagging.as_ref(),
                checks: &mut self.checks,
                rng: &mut self.rng,
                fault_rates: &self.fault_rates,
                trace: &mut self.trace,
                next_steps: Vec::new(),
                waiting_steps: Vec::new(),
            };
            process.execute_step(step, &mut context);
            let (next_steps, waiting_steps) = (context.next_steps, context.waiting_steps);
            let process_number = process.process_number();
            for (revision, step) in waiting_steps {
                let task = SimTask::ControllerStep { controller, process_number, step };
                self.wait_for_revision(revision, task);
            }
            for (delay, step) in next_steps {
                self.schedule_after(delay, SimTask::ControllerStep { controller, process_number, step });
            }
        }
        self.controllers.insert(controller, process);
    }

    /// Schedules the delivery of a new commit of this kind to all built-in controllers that watch the kind on this
    /// server.
    pub(super) fn schedule_delivery_to_controllers(&mut self, server: ServerId, kind: Kind) {
        let controllers: Vec<SimController> = self.controllers.keys().copied().collect();
        for controller in controllers {
            let Some(process) = self.controllers.get_mut(&controller).filter(|it| it.server() == server)
            else {
                continue;
            };
            let process_number = process.process_number();
            if let Some(step) = process.mark_delivery_scheduled(WatchSource::Commits(kind)) {
                let delay = self.random_delay();
                self.schedule_after(delay, SimTask::ControllerStep { controller, process_number, step });
            }
        }
    }

    /// Makes a built-in controller use `server`, and restarts its process if it is running.
    pub(super) fn restart_controller(&mut self, controller: SimController, server: ServerId) {
        let Some(process) = self.controllers.get_mut(&controller) else { return };
        process.set_server(server);
        if process.crash() {
            let process_number = process.process_number();
            self.trace.add_line(self.now, || format!("{controller:?} restarts on the {server:?} server"));
            self.schedule_after(
                Duration::from_secs(1),
                SimTask::ControllerStep { controller, process_number, step: ControllerStep::Start },
            );
        }
    }

    /// Schedules the delivery of renewed node Leases to the node lifecycle controller.
    pub fn schedule_lease_delivery(&mut self) {
        let Some(process) = self.controllers.get_mut(&SimController::NodeLifecycle) else { return };
        let process_number = process.process_number();
        if let Some(step) = process.mark_delivery_scheduled(WatchSource::Leases) {
            let delay = self.random_delay();
            self.schedule_after(
                delay,
                SimTask::ControllerStep { controller: SimController::NodeLifecycle, process_number, step },
            );
        }
    }
}
