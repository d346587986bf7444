#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

// Generators of schedules, each in the file of its name, but for zb-h1 and zb-h2, which
// are in split_backward.cpp, zb-v, v-half and v-min, which are in v_shape.cpp, and the
// kinds of pipedream and of dualpipe, which share a file each. All give the
// order of work without messages, and throw UsageError if the shape cannot be. Times: a
// stage's forward of a micro-batch takes t_f, its backward t_b = t_i + t_w, the halves; a
// chunk of v takes a v-th; messages are free. The bubble is what Timing::bubble() in
// timer.hpp says.

/// Each micro-batch goes through all stages, forward and back, before the
/// next begins: what comes of layers on several devices and no pipeline.
/// Takes m p (t_f + t_b); one stage works at a time.
Schedule naive_schedule(const PipelineShape& shape);

/// All forwards, then all backwards (Huang et al. 2019, GPipe, 1811.06965, section 2.3).
/// Takes (m + p - 1)(t_f + t_b); every stage holds the activations of m micro-batches.
/// Differs: the paper's figure goes backward from the last micro-batch to the first; this
/// one keeps their order, and with it the order of sums.
Schedule gpipe_schedule(const PipelineShape& shape);

/// One forward, one backward, after as many forwards as fill the pipe
/// (PipeDream-Flush; Narayanan et al. 2021, 2006.09503). Takes
/// as long as GPipe, but stage s holds min(p - s, m) micro-batches.
Schedule one_forward_one_backward_schedule(const PipelineShape& shape);

/// 1F1B over v chunks a stage, which micro-batches visit round and round (Narayanan et
/// al. 2021, SC21, 2104.04473, section 2.2): p of them at a time, or, if m is no multiple
/// of p, floor(m / p) rounds, as even as can be, of g at most. Takes (m + (p - 1) /
/// v)(t_f + t_b) if m >= p, for (v p - 1)/(p - 1) times the messages; stage s holds min(2
/// (p - s - 1) + (v - 1) g + 1, m v) chunks' activations. With one chunk it is 1F1B that
/// runs further ahead than it must.
Schedule interleaved_schedule(const PipelineShape& shape);

/// GPipe over v chunks a stage: all micro-batches pass through a chunk before the next
/// (Lamy-Poirier 2023, Breadth-First Pipeline Parallelism, 2211.05953, section 4). Takes
/// (m + (p - 1) / v)(t_f + t_b) if m >= p; stage s holds all m v chunks' activations, but
/// each chunk's gradients are reduced as soon as they are whole. So the first and the
/// last part cannot share a table, unless all of them lie on one stage.
Schedule looped_breadth_first_schedule(const PipelineShape& shape);

/// 1F1B whose micro-batches go to and fro over the stages in W waves (Liu et al. 2023,
/// Hanayo, 2308.15762, section 3): v = 2 W chunks a stage, two if one is asked for, of
/// which every second is on a way back; where a wave turns round nothing is sent. They go
/// in units of p. If m is a multiple of p and t_f <= t_b, the bubble is
/// (2 (p - 1) / v) (t_b + (m / p - 1)(t_b - t_f)); stage s holds (v - 1) p + s + 1
/// chunks' activations.
Schedule hanayo_schedule(const PipelineShape& shape);

/// 1F1B with backward in two halves, the second as late as 1F1B's memory allows: it fills
/// the bubble (Qi et al. 2023, Zero Bubble, 2401.10241, section 2). The bubble is
/// (p - 1)(t_f + t_i - t_w) if m >= p and t_w <= t_f; stage s holds min(p - s, m)
/// micro-batches before and min(s + 1, m) between the halves.
Schedule zb_h1_schedule(const PipelineShape& shape);

/// ZB-H1 with twice as many micro-batches ahead (section 2). The bubble is
/// (p - 1)(t_f + t_i - 2 t_w) if m >= 2 p - 1, t_w <= t_f and 2 t_w <= t_f
/// + t_i: none if all three take the same time; stage s holds min(2 (p - s)
/// - 1, m) micro-batches before and min(2 s + 1, m) between the halves.
Schedule zb_h2_schedule(const PipelineShape& shape);

// Two chunks a stage, in a V, and backward in two halves (Qi et al. 2024, Pipeline
// Parallelism with Controllable Memory, 2405.15362, section 3): a building block of one
// micro-batch's passes is repeated every six passes, and what is idle is squeezed out. If
// all passes take the same time, nothing is idle in the middle of a run, and what is left
// does not grow with m. A micro-batch's activations are those of two chunks.

/// ZB-H2's bubble with 1F1B's memory (Qi et al. 2023, 2401.10241, section 6). There is no
/// bubble if m >= 2 p and all passes take the same time; each stage holds p
/// micro-batches.
Schedule zb_v_schedule(const PipelineShape& shape);

/// About half of 1F1B's bubble with half of its memory: less than 3 p passes, and
/// floor((p + 2) / 2) micro-batches.
Schedule v_half_schedule(const PipelineShape& shape);

/// Two thirds of 1F1B's bubble with a third of its memory: less than 4 p passes, and
/// floor((p + 4) / 3) micro-batches.
Schedule v_min_schedule(const PipelineShape& shape);

/// Two pipelines in one, from both ends (Li and Hoefler 2021, Chimera, 2107.06925,
/// section 3): each stage, of an even number, holds two parts, and each part is on two
/// stages, which reduce its gradients. Micro-batches come in units of p, half of them
/// from each end. If m is a multiple of p and t_f <= t_b, both here of a chunk, the
/// bubble is (p - 2)(t_b + (m / p - 1)(t_b - t_f)); stage s holds p / 2 + 1 + min(s, p -
/// 1 - s) chunks' activations. Differs: units are joined directly; the paper also doubles
/// forwards.
Schedule chimera_schedule(const PipelineShape& shape);

/// Chimera with backwards in halves where that helps, and pairs of a forward and a
/// backward that overlap (DeepSeek-AI 2024, DeepSeek-V3, 2412.19437, section 3.2.1): the
/// messages of one hide behind the computation of the other. An even number of stages,
/// and of micro-batches, 2 p at least. If t_f = t_i >= t_w, all here of a chunk, and a
/// pair takes no less than a backward, the stages in the middle are idle for (p / 2 - 1)
/// (t_fb + t_b - 3 t_w), where t_fb is the time of a pair; each holds p + 1 chunks'
/// activations.
Schedule dualpipe_schedule(const PipelineShape& shape);

/// Half of DualPipe: its upper half's parts lie on its lower half, in a V, so that each
/// part is on one stage. With m micro-batches, 2 p at least, p stages do what stages 0 to
/// p - 1 of 2 p do in DualPipe with 2 m.
Schedule dualpipe_v_schedule(const PipelineShape& shape);

/// 1F1B that does not stop: weights change behind every backward, and each backward reads
/// those that its forward read, which the stage has kept (weight stashing; Harlap et al.
/// 2018, PipeDream, 1806.03377, section 3.3). Micro-batch i reads version max(0, i - (p -
/// s - 1)) on stage s: its gradient changes weights that are p - s - 1 updates newer.
/// Stage s holds p - s versions and as many micro-batches; in the period there is no
/// bubble. Differs: the paper profiles layers and replicates stages; these stages are one
/// device each.
Schedule pipedream_schedule(const PipelineShape& shape);

/// PipeDream with vertical sync (section 3.3): on all stages a micro-batch reads the
/// version that the first stage has for it, max(0, i - (p - 1)), so that its gradient is
/// of one model's weights. All stages hold p versions.
Schedule pipedream_vertical_schedule(const PipelineShape& shape);

/// PipeDream with two versions of the weights (Narayanan et al. 2021, PipeDream-2BW,
/// 2006.09503, section 3.1): gradients of `per_update` micro-batches, p - 1 at least and
/// the first divisor of m from p on if it is not said, are summed up before an update,
/// and those of batch k read version max(0, k - 1) on all stages: W(t + 1) = W(t) -
/// f'(W(t - 1)). The micro-batches must be a multiple. In the period there is no bubble.
/// Its variant with a flush is 1f1b. Differs: the paper takes p at least.
Schedule pipedream_2bw_schedule(const PipelineShape& shape);

/// PipeDream without a stash: forward and backward read the newest weights, so that a
/// gradient is of two models at once. One version, and nobody's recommendation.
Schedule unstashed_schedule(const PipelineShape& shape);

/// PipeDream with predicted weights (Chen et al. 2018, SpecTrain, 1809.02839, section 4):
/// forward reads an estimate of the weights that backward will find, p - s - 1 updates
/// ahead. One version, and the average step.
Schedule spectrain_schedule(const PipelineShape& shape);

/// PipeDream with corrected weights (Yang et al. 2021, PipeMare, 1910.05124, section 3.2,
/// technique 2): backward reads an estimate of the weights that its forward has read.
/// Differs: the paper also lowers the learning rate at first (technique 1).
Schedule pipemare_schedule(const PipelineShape& shape);

/// Names of all generators ("naive", "1f1b", …), in the order of their table in
/// generators.cpp. The command line, the man page, the book and tests have them from
/// here.
const std::vector<std::string>& schedule_names();
/// One of them by name. Throws UsageError for another name, or for more chunks than the
/// schedule has; one chunk, which is what is asked for by default, is its own number. One
/// that flushes is made for `per_update` micro-batches, if they are said, and repeated
/// until all are done.
Schedule make_schedule(const std::string& name, const PipelineShape& shape);
/// Returns whether a schedule of that name empties the pipeline before each update of the
/// weights.
bool flushes(const std::string& name);
/// Makes it with as many more micro-batches as it takes for its middle to repeat; none if
/// it flushes, and so ends.
std::optional<Schedule> make_endless_schedule(const std::string& name,
                                              PipelineShape shape);

}  // namespace lockstep
