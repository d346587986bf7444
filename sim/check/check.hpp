#pragma once

// Who finds which class of mistake (src/run/fault_text.cpp lists them). A file is called
// what it looks at, and holds all of that: the rule and the words.
//
// Always on, for what ranks call together and for runs that stop:
//
//     mismatch        F01 to F05, F08, F09, F13   ranks, or a send and a recv, differ,
//                     F26                         or add up different parameters
//     group_making    F06                         members of a split disagree
//     deadlock        F07, F10 to F14             nothing can run any more, and who waits
//     checker         F07, F24                    expect_replicated, declare_same
//     unfinished      F19, F31                    Work that nobody waited for,
//                                                 communicators that some have let go of
//
// F15 (group), F20 (aliasing), F24 and F27 (expect) are found in src/comm, F30 (ledger)
// in src/device, on every backend. checker asks all of these for the engine, too;
// activity says what ranks are doing meanwhile.
//
// Watchers (sim/watcher.hpp), under CheckLevel::full only:
//
//     in_flight       F16 to F18     buffers touched while in use; vector_clock
//     order_graph     F12            communicators in opposite order, in runs that pass
//     layouts         F22, F23, F27  how values lie over ranks
//     own_gradients   F23            one parameter, a gradient of its own on each rank
//     row_weights     F21, F28       how much each row counts
//     gradient_use    F27            gradients that are not set to zero
//     gradient_norm   F22, F23       what a norm of gradients counts
//     shard_steps     F23, F24       parts of one parameter that step differently
//     replicas        F23, F24       parameters that drift apart
//     versions        F25            weights of an older version, in part or whole
//     shards          F26            shards gathered in another order
//     streams         F29            random numbers
//     reference       F21, F27, F28  the result beside that of one device
//
// Those that follow values through memory are trackers (shadow) and know what made them
// (origin); gradient_terms finds nothing by itself, but tells whose terms a gradient
// lacks that another has found to differ. What members say of one thing is compared by a
// rollcall.

#include <cstdint>
#include <memory>
#include <optional>

#include "sim/watcher.hpp"

namespace lockstep::sim {

class Layouts;
class TermsTracker;

// Always on. The run is quiet, but for explain_open_works.

/// Returns why a collective cannot go on whose members passed different things, or a send
/// and a recv that differ. `posted` is any operation of it.
Diagnosis explain_difference(const Engine& engine, const Posted& posted);

/// FaultError (F06) if the members of a split, all of which have come, disagree about the
/// groups that it makes: members of one new group that call it differently, lists of
/// members that differ, a group that is not what a member expects.
void require_same_groups(const Engine& engine, const Team& team, const Meeting& meeting);

/// Returns why nothing can run any more; nothing if every rank has ended and nothing is
/// left open.
std::optional<Diagnosis> explain_stop(const Engine& engine);

/// Returns who waits for whom. Ranks in one collective are one wait; those that passed
/// something else to it are waited for as if they had not come. If many ranks wait for
/// messages at one line, they are one wait for all of their peers.
std::vector<Diagnosis::Wait> waits_of(const Engine& engine);

/// Returns what was never waited for (F19), now that every rank has ended and nothing is
/// left open.
std::optional<Diagnosis> explain_unwaited(const Engine& engine);

/// A member lets go of its communicator while its program could still wait for operations
/// of it (F31). Nothing if it has given those up: then nobody waits for them, which is
/// another mistake.
std::optional<Diagnosis> explain_open_works(const Engine& engine, const Team& team,
                                            int member);

/// Every rank has ended: a communicator that some of its ranks have let go of and others
/// have kept beyond the end of their programs (F31). To end one takes all its ranks.
std::optional<Diagnosis> explain_kept(const Engine& engine);

/// Knows by which norms ranks have clipped their gradients.
class Clips {
  public:
    Clips() = default;
    virtual ~Clips() = default;
    Clips(const Clips&) = delete;
    Clips& operator=(const Clips&) = delete;

    /// Returns which of the rank's clips has scaled the gradient, from 0; negative if
    /// none is known.
    virtual std::int64_t clip_of(int rank, const Tensor& gradient) const = 0;
    /// Returns why that clip scales the two ranks' replicas of a gradient differently:
    /// their norms count other gradients. Nothing if they count the same.
    virtual std::optional<Diagnosis> explain_unlike(int one, int other,
                                                    std::int64_t clip) const = 0;
};

/// A watcher that follows gradient norms, and what it knows, as long as it stays.
struct NormWatcher {
    std::unique_ptr<Watcher> watcher;
    const Clips* clips;
};

// Under CheckLevel::full. What asks for the layouts is told of a call before they are: it
// wants those from before it.

std::unique_ptr<Watcher> watch_buffers(Engine& engine);
std::unique_ptr<Watcher> watch_launch_order(Engine& engine);
std::unique_ptr<Watcher> watch_versions(Engine& engine, const Layouts& layouts);
std::unique_ptr<Watcher> watch_row_weights(Engine& engine);
std::unique_ptr<Watcher> watch_gradient_use(Engine& engine);
std::unique_ptr<Watcher> watch_replicas(Engine& engine, const Layouts& layouts,
                                        const TermsTracker& terms, const Clips& clips);
std::unique_ptr<Watcher> watch_own_gradients(Engine& engine, const Layouts& layouts,
                                             const TermsTracker& terms);
std::unique_ptr<Watcher> watch_random_streams(Engine& engine, const Layouts& layouts);
NormWatcher watch_gradient_norms(Engine& engine, const Layouts& layouts);
std::unique_ptr<Watcher> watch_shard_steps(Engine& engine, const Layouts& layouts);
std::unique_ptr<Watcher> watch_shards(Engine& engine);
std::unique_ptr<Watcher> watch_reference(Engine& engine);

}  // namespace lockstep::sim
