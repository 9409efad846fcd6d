//! Pointer chases, and chains of multiply-adds.

use cudarc::driver::result;

use super::{CudaRig, Shape};
use crate::gpu::{GpuError, arg, while_doing};
use crate::kernels::{CHAIN, CHASE, CHASE_SHARED, RING};
use crate::rig::{Chase, Chased, Clocks, Load, Place, RigError, WORD};

/// Blocks per SM of a launch that is to reach a certain SM: the device spreads them, so that each SM gets one.
const BLOCKS_PER_SM: u32 = 4;

/// The ring that was laid last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    place: Place,
    base: u64,
    /// Where the order is, on the device.
    next: u64,
    nodes: u32,
}

impl CudaRig {
    /// Copies the order to the end of the device's memory, and lays the ring by it.
    pub(super) fn lay_ring(&mut self, place: Place, next: &[u32]) -> Result<(), RigError> {
        self.ring = None;
        self.filled = 0;
        let nodes = u32::try_from(next.len()).map_err(|_| RigError("a ring of more than 2^32 nodes".to_owned()))?;
        let order_bytes = u64::from(nodes) * 4;
        let ring_bytes = u64::from(nodes) * u64::from(place.stride());
        let (base, room) = match place {
            Place::Shared => (0, u64::MAX),
            Place::Device => (self.arena.address, self.arena.bytes.saturating_sub(order_bytes)),
            Place::Peer(number) => {
                let peer = self.take_peer(number, ring_bytes)?;
                let arena = &self.peer.insert(peer).arena;
                (arena.address, arena.bytes)
            }
            Place::PinnedHost => {
                let host = self.take_host()?;
                let pinned = &self.host.insert(host).pinned;
                (pinned.on_device(), pinned.bytes as u64)
            }
        };
        if ring_bytes > room || order_bytes > self.arena.bytes || nodes == 0 {
            return Err(RigError(format!(
                "a ring of {ring_bytes} bytes does not fit into {room}"
            )));
        }
        let order = (self.arena.address + self.arena.bytes - order_bytes) & !3;
        let ring = Ring {
            place,
            base,
            next: order,
            nodes,
        };
        self.write_ring(ring, next)?;
        self.ring = Some(ring);
        Ok(())
    }

    fn write_ring(&mut self, ring: Ring, next: &[u32]) -> Result<(), GpuError> {
        let laying = || while_doing("laying a ring of pointers");
        let function = self.functions.get(RING)?;
        // SAFETY: the order fits behind the ring, in memory of this object; the copy ends before the call returns.
        unsafe { result::memcpy_htod_sync(ring.next, next) }.map_err(laying())?;
        if ring.place != Place::Shared {
            let (mut base, mut next, mut nodes) = (ring.base, ring.next, ring.nodes);
            let mut stride = ring.place.stride();
            let mut args = [arg(&mut base), arg(&mut next), arg(&mut nodes), arg(&mut stride)];
            let shape = Shape {
                blocks: 1024,
                threads: 256,
                shared: 0,
            };
            self.launch(function, shape, &mut args).map_err(laying())?;
        }
        self.context.synchronize().map_err(laying())
    }

    pub(super) fn chase_global(&mut self, chase: Chase) -> Result<Chased, RigError> {
        let ring = self
            .ring
            .filter(|ring| ring.place != Place::Shared && chase.from < ring.nodes);
        let ring = ring.ok_or_else(|| RigError("there is no such ring in global memory".to_owned()))?;
        let stride = u64::from(ring.place.stride());
        let blocks = match chase.sm {
            Some(_) => self.card.sms.saturating_mul(BLOCKS_PER_SM),
            None => 1,
        };
        let function = self.functions.get(CHASE)?;
        let run = || {
            self.clear_report();
            let mut start = ring.base + u64::from(chase.from) * stride;
            let (mut warm, mut hops) = (chase.warm, chase.hops);
            let mut use_l1 = u32::from(chase.load == Load::Ca);
            let (mut sm, mut report) = (chase.sm.unwrap_or(u32::MAX), self.report.on_device());
            let mut args = [
                arg(&mut start),
                arg(&mut warm),
                arg(&mut hops),
                arg(&mut use_l1),
                arg(&mut sm),
                arg(&mut report),
            ];
            self.launch(
                function,
                Shape {
                    blocks,
                    ..Shape::SINGLE
                },
                &mut args,
            )?;
            self.report()
        };
        let report = run().map_err(while_doing("chasing pointers in global memory"))?;
        if report[0] == 0 {
            return Err(RigError(format!("no block ran on SM {}", chase.sm.unwrap_or_default())));
        }
        Ok(chased(&report, report[3].wrapping_sub(ring.base) / stride))
    }

    pub(super) fn chase_shared(&mut self, chase: Chase) -> Result<Chased, RigError> {
        let ring = self.ring.filter(|ring| ring.place == Place::Shared);
        let ring = ring.ok_or_else(|| RigError("there is no ring for shared memory".to_owned()))?;
        let shape = Shape {
            shared: ring.nodes.saturating_mul(WORD),
            ..Shape::SINGLE
        };
        let function = self.functions.get(CHASE_SHARED)?;
        let run = || {
            self.clear_report();
            let (mut next, mut nodes, mut hops) = (ring.next, ring.nodes, chase.hops);
            let mut indexed = u32::from(chase.load == Load::SharedIndex);
            let mut report = self.report.on_device();
            let mut args = [
                arg(&mut next),
                arg(&mut nodes),
                arg(&mut hops),
                arg(&mut indexed),
                arg(&mut report),
            ];
            self.launch(function, shape, &mut args)?;
            self.report()
        };
        let report = run().map_err(while_doing("chasing pointers in shared memory"))?;
        Ok(chased(&report, report[3]))
    }

    pub(super) fn try_chain(&mut self, steps: u32) -> Result<Clocks, GpuError> {
        let function = self.functions.get(CHAIN)?;
        let run = || {
            self.clear_report();
            let (mut x, mut factor, mut summand, mut steps) = (1f32, 0.999f32, 0.5f32, steps);
            let mut report = self.report.on_device();
            let mut args = [
                arg(&mut x),
                arg(&mut factor),
                arg(&mut summand),
                arg(&mut steps),
                arg(&mut report),
            ];
            self.launch(function, Shape::SINGLE, &mut args)?;
            self.report()
        };
        let report: [u64; super::REPORT_WORDS] = run().map_err(while_doing("computing a chain of multiply-adds"))?;
        Ok(Clocks {
            cycles: report[1],
            ns: report[2],
        })
    }
}

fn chased(report: &[u64; super::REPORT_WORDS], end: u64) -> Chased {
    Chased {
        clocks: Clocks {
            cycles: report[1],
            ns: report[2],
        },
        // An address outside of the ring becomes a node that no walk ends at.
        end: u32::try_from(end).unwrap_or(u32::MAX),
        sm: u32::try_from(report[4]).unwrap_or(u32::MAX),
    }
}
