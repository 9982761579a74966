//! Executes the steps of the built-in controllers, and delivers watch events to them.

use std::time::Duration;

use muster_engine::daemonset::facts::Kind;

use super::{SimTask, World};
use crate::controllers::{ControllerStep, SimController, StepContext, WatchSource};

impl World {
    /// Executes one step of a built-in controller, unless the process that the step was scheduled for has crashed.
    /// `Start` is always executed. The step is postponed while the controller is switched off.
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
            let mut context = StepContext {
                now: self.now,
                server: &mut self.server,
                rng: &mut self.rng,
                fault_rates: &self.fault_rates,
                trace: &mut self.trace,
                next_steps: Vec::new(),
            };
            process.execute_step(step, &mut context);
            let next_steps = context.next_steps;
            let process_number = process.process_number();
            for (delay, step) in next_steps {
                self.schedule_after(delay, SimTask::ControllerStep { controller, process_number, step });
            }
        }
        self.controllers.insert(controller, process);
    }

    /// Schedules the delivery of a new commit of this kind to all built-in controllers that watch the kind.
    pub fn schedule_delivery_to_controllers(&mut self, kind: Kind) {
        let controllers: Vec<SimController> = self.controllers.keys().copied().collect();
        for controller in controllers {
            let Some(process) = self.controllers.get_mut(&controller) else { continue };
            let process_number = process.process_number();
            if let Some(step) = process.mark_delivery_scheduled(WatchSource::Commits(kind)) {
                let delay = self.random_delay();
                self.schedule_after(delay, SimTask::ControllerStep { controller, process_number, step });
            }
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
