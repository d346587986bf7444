#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

// Generators of schedules. Each is in the file of its name, with these exceptions: zb-h1
// and zb-h2 are in split_backward.cpp; zb-v, v-half and v-min are in v_shape.cpp; the
// kinds of pipedream share one file, and so do the kinds of dualpipe. All return the
// order of work without messages, and throw UsageError if the shape is impossible. Times:
// on a stage, the forward of a micro-batch takes t_f, and the backward takes t_b = t_i +
// t_w, the sum of its halves. With v chunks, each chunk takes 1/v of these times.
// Messages are free. "The bubble" is Timing::bubble() (timer.hpp).

/// Each micro-batch goes forward and back through all stages before the next one begins.
/// This is what layers on several devices do without a pipeline. Takes m p (t_f + t_b),
/// because one stage works at a time.
Schedule naive_schedule(const PipelineShape& shape);

/// All forwards, then all backwards (Huang et al. 2019, GPipe, 1811.06965, section 2.3).
/// Takes (m + p - 1)(t_f + t_b); every stage holds the activations of m micro-batches.
/// Differs: in the paper's figure, the last micro-batch has the first backward. Here
/// backwards run in the order of the forwards, which keeps the order of sums.
Schedule gpipe_schedule(const PipelineShape& shape);

/// One forward, one backward, after enough forwards to fill the pipe (PipeDream-Flush;
/// Narayanan et al. 2021, 2006.09503). Takes as long as GPipe, but stage s holds only
/// min(p - s, m) micro-batches.
Schedule one_forward_one_backward_schedule(const PipelineShape& shape);

/// 1F1B over v chunks a stage. Micro-batches pass the chunks in rounds (Narayanan et al.
/// 2021, SC21, 2104.04473, section 2.2). A round has p micro-batches; if p does not
/// divide m, there are max(1, floor(m / p)) rounds of nearly equal size; the largest has
/// g micro-batches. Takes (m + (p - 1) / v)(t_f + t_b) if m >= p, and sends
/// (v p - 1)/(p - 1) times as many messages as 1F1B. Stage s holds the activations of
/// min(2 (p - s - 1) + (v - 1) g + 1, m v) chunks. With one chunk it is 1F1B with more
/// forwards ahead than needed.
Schedule interleaved_schedule(const PipelineShape& shape);

/// GPipe over v chunks a stage: all micro-batches pass one chunk before any enters the
/// next (Lamy-Poirier 2023, Breadth-First Pipeline Parallelism, 2211.05953, section 4).
/// Takes (m + (p - 1) / v)(t_f + t_b) if m >= p. Stage s holds the activations of all m v
/// chunks, but each chunk's gradients are reduced as soon as they are complete. For that
/// reason the first and the last part cannot share a table, unless one stage has both.
Schedule looped_breadth_first_schedule(const PipelineShape& shape);

/// 1F1B whose micro-batches go back and forth over the stages in W waves (Liu et al.
/// 2023, Hanayo, 2308.15762, section 3). There are v = 2 W chunks a stage (one chunk
/// counts as two), and every second chunk is on a way back. At the turn of a wave nothing
/// is sent. Micro-batches run in units of p. If m is a multiple of p and t_f <= t_b, the
/// bubble is (2 (p - 1) / v) (t_b + (m / p - 1)(t_b - t_f)); stage s holds the
/// activations of (v - 1) p + s + 1 chunks.
Schedule hanayo_schedule(const PipelineShape& shape);

/// 1F1B with backward in two halves. The second half runs as late as 1F1B's memory
/// allows, and so fills the bubble (Qi et al. 2023, Zero Bubble, 2401.10241, section 2).
/// The bubble is (p - 1)(t_f + t_i - t_w) if m >= p and t_w <= t_f; stage s holds min(p -
/// s, m) micro-batches before their backward and min(s + 1, m) between the halves.
Schedule zb_h1_schedule(const PipelineShape& shape);

/// ZB-H1 in which each stage runs twice as many forwards ahead (section 2). The bubble is
/// (p - 1)(t_f + t_i - 2 t_w) if m >= 2 p - 1, t_w <= t_f and 2 t_w <= t_f + t_i; it is 0
/// if t_f, t_i and t_w are equal. Stage s holds min(2 (p - s) - 1, m) micro-batches
/// before their backward and min(2 s + 1, m) between the halves.
Schedule zb_h2_schedule(const PipelineShape& shape);

// Two chunks a stage, in a V, and backward in two halves (Qi et al. 2024, Pipeline
// Parallelism with Controllable Memory, 2405.15362, section 3). The passes of one
// micro-batch form a building block, which is repeated every six passes; then idle time
// is squeezed out. If all passes take the same time, no stage is idle in the middle of a
// run, and the rest of the bubble does not grow with m. A micro-batch's activations
// include both chunks.

/// ZB-H2's bubble with 1F1B's memory (Qi et al. 2023, 2401.10241, section 6). There is no
/// bubble if m >= 2 p and all passes take the same time; each stage holds p
/// micro-batches.
Schedule zb_v_schedule(const PipelineShape& shape);

/// About half of 1F1B's bubble and half of its memory: the bubble is less than 3 p
/// passes, and a stage holds floor((p + 2) / 2) micro-batches.
Schedule v_half_schedule(const PipelineShape& shape);

/// Two thirds of 1F1B's bubble and a third of its memory: the bubble is less than 4 p
/// passes, and a stage holds floor((p + 4) / 3) micro-batches.
Schedule v_min_schedule(const PipelineShape& shape);

/// Two pipelines in one, one from each end (Li and Hoefler 2021, Chimera, 2107.06925,
/// section 3). The number of stages is even. Each stage holds two parts, and each part is
/// on two stages, which reduce its gradients. Micro-batches run in units of p, half of
/// them from each end. If m is a multiple of p and t_f <= t_b (of one chunk), the bubble
/// is (p - 2)(t_b + (m / p - 1)(t_b - t_f)); stage s holds the activations of p / 2 + 1 +
/// min(s, p - 1 - s) chunks. Differs: units follow each other directly; the paper also
/// has a form with doubled forwards.
Schedule chimera_schedule(const PipelineShape& shape);

/// Chimera with pairs of a forward and a backward that overlap (DeepSeek-AI 2024,
/// DeepSeek-V3, 2412.19437, section 3.2.1): while one of the two computes, the messages
/// of the other travel. Some backwards run in halves. Needs an even number of stages and
/// an even number of micro-batches, at least 2 p. If t_f = t_i >= t_w (of one chunk), and
/// a pair takes at least as long as a backward, the stages in the middle are idle for
/// (p / 2 - 1) (t_fb + t_b - 3 t_w), where t_fb is the time of a pair; each stage holds
/// the activations of p + 1 chunks.
Schedule dualpipe_schedule(const PipelineShape& shape);

/// Half of DualPipe: the lower half of its stages. They have all parts, in a V, so each
/// part is on one stage. Needs at least 2 p micro-batches. With m micro-batches, the p
/// stages work like the first half of a DualPipe with 2 p stages and 2 m micro-batches.
Schedule dualpipe_v_schedule(const PipelineShape& shape);

/// 1F1B that does not stop: weights change after every backward. A backward reads the
/// same weights as its forward; the stage has kept them (weight stashing; Harlap et al.
/// 2018, PipeDream, 1806.03377, section 3.3). On stage s, micro-batch i reads version
/// max(0, i - (p - s - 1)), and its gradient changes weights that are p - s - 1 updates
/// newer. Stage s holds p - s versions and p - s micro-batches; in the period there is no
/// bubble. Differs: the paper profiles layers and replicates stages; here each stage is
/// one device.
Schedule pipedream_schedule(const PipelineShape& shape);

/// PipeDream with vertical sync (section 3.3): on all stages a micro-batch reads the
/// version that it read on the first stage, max(0, i - (p - 1)). So its gradient belongs
/// to the weights of one model. All stages hold p versions.
Schedule pipedream_vertical_schedule(const PipelineShape& shape);

/// PipeDream with two versions of the weights (Narayanan et al. 2021, PipeDream-2BW,
/// 2006.09503, section 3.1): the gradients of a batch of `per_update` micro-batches are
/// summed before an update. Batch k reads version max(0, k - 1) on all stages: W(t + 1) =
/// W(t) - f'(W(t - 1)). `per_update` is at least p - 1 and divides m; the default is the
/// smallest divisor of m that is at least p. In the period there is no bubble. The
/// paper's variant with a flush is 1f1b. Differs: the paper's `per_update` is at least p.
Schedule pipedream_2bw_schedule(const PipelineShape& shape);

/// PipeDream without a stash: forward and backward read the newest weights, so a gradient
/// mixes two models. It keeps one version; no paper recommends it.
Schedule unstashed_schedule(const PipelineShape& shape);

/// PipeDream with predicted weights (Chen et al. 2018, SpecTrain, 1809.02839, section 4):
/// forward reads an estimate of the weights that its backward will read, p - s - 1
/// updates later. It keeps one version and the average step.
Schedule spectrain_schedule(const PipelineShape& shape);

/// PipeDream with corrected weights (Yang et al. 2021, PipeMare, 1910.05124, section 3.2,
/// technique 2): backward reads an estimate of the weights that its forward has read.
/// Differs: the paper also lowers the learning rate at first (technique 1).
Schedule pipemare_schedule(const PipelineShape& shape);

/// Returns the names of all generators ("naive", "1f1b", …), in the order of their table
/// in generators.cpp. The command line, the man page, the book and tests use this list.
const std::vector<std::string>& schedule_names();
/// Returns the names of the generators that can have any number of chunks on a stage.
const std::vector<std::string>& schedules_of_many_chunks();
/// Makes the schedule of that name. Throws UsageError for an unknown name, and for more
/// chunks than the schedule can have; with one chunk (the default) the schedule has its
/// usual number. If the schedule flushes and `per_update` is given, it is made for
/// `per_update` micro-batches and repeated until all micro-batches are done.
Schedule make_schedule(const std::string& name, const PipelineShape& shape);
/// Returns whether a schedule of that name empties the pipeline before each update of the
/// weights.
bool flushes(const std::string& name);
/// Makes the schedule with enough additional micro-batches for its middle to repeat.
/// Returns none if the schedule flushes, because such a schedule ends.
std::optional<Schedule> make_endless_schedule(const std::string& name,
                                              PipelineShape shape);

}  // namespace lockstep
