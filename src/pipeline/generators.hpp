#pragma once

#include "src/pipeline/schedule.hpp"

namespace lockstep {

// Generators of schedules, each in the file of its name, but for zb-h1 and zb-h2, which
// are in split_backward.cpp. All give the order of work without messages, and throw
// UsageError if the shape cannot be. Times: a stage's forward of a micro-batch takes t_f,
// its backward t_b = t_i + t_w, the halves; a chunk of v takes a v-th; messages are free.
// The bubble is what Timing::bubble() in timer.hpp says.

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

/// 1F1B over v chunks a stage, which micro-batches visit round and round, p
/// of them at a time (Narayanan et al. 2021, SC21, 2104.04473,
/// section 2.2). Takes (m + (p - 1) / v)(t_f + t_b), for (v p - 1)/(p - 1)
/// times the messages; stage s holds min(2 (p - s - 1) + (v - 1) p + 1, m
/// v) chunks' activations. The micro-batches must be a multiple of the
/// stages. With one chunk it is 1F1B that runs further ahead than it must.
Schedule interleaved_schedule(const PipelineShape& shape);

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

/// "naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2".
const std::vector<std::string>& schedule_names();
/// One of them by name. Throws UsageError for another name, or if the
/// schedule has no chunks and `shape` asks for several.
Schedule make_schedule(const std::string& name, const PipelineShape& shape);

}  // namespace lockstep
