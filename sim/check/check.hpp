#pragma once

// Which file finds which class of mistake (src/run/fault_text.cpp lists the classes). A
// file is named after the thing that it checks. It has both the rule and its messages.
//
// Always on, for calls that ranks make together and for runs that stop:
//
//     mismatch        F01 to F05, F08, F09, F13   ranks, or a send and a recv, differ,
//                     F26                         or add up different parameters
//     group_making    F06                         members of a split disagree
//     deadlock        F07, F10 to F14             nothing can run: who waits for whom
//     checker         F07, F24                    expect_replicated, declare_same
//     unfinished      F19, F31                    Work that was never waited for,
//                                                 communicators that some ranks have kept
//
// F15 (group), F20 (aliasing), F24 and F27 (expect) are found in src/comm, F30 (ledger)
// in src/device, on every backend. checker calls all of the files above for the engine;
// activity says what ranks do meanwhile.
//
// Watchers (sim/watcher.hpp), only under CheckLevel::full:
//
//     in_flight       F16 to F18     buffers touched while in use; vector_clock
//     order_graph     F12            communicators in opposite order, in runs that pass
//     layouts         F22, F23, F27  how values are distributed over ranks
//     own_gradients   F23            one parameter, but a different gradient on each rank
//     row_weights     F21, F28       how much each row counts
//     gradient_use    F27            gradients that are not set to zero
//     gradient_norm   F22, F23       what a norm of gradients counts
//     shard_steps     F23, F24       parts of one parameter that are updated differently
//     replicas        F23, F24       parameters that drift apart
//     versions        F25            weights of an older version, in part or whole
//     shards          F26            shards gathered in another order
//     streams         F29            random numbers
//     reference       F21, F27, F28  the result, compared with that of one device
//
// Watchers that follow values through memory are trackers (shadow) and know what made the
// values (origin). gradient_terms finds no mistakes; if another watcher finds gradients
// that differ, gradient_terms tells which ranks' terms are missing. rollcall compares
// what members say about one thing.

#include <cstdint>
#include <memory>
#include <optional>

#include "sim/watcher.hpp"

namespace lockstep::sim {

class Layouts;
class TermsTracker;

// Always on. The run is quiet in all of these calls except explain_open_works.

/// Returns why a collective or a message cannot go on: its members passed different
/// arguments, or its send and recv differ. `posted` is any of its operations.
Diagnosis explain_difference(const Engine& engine, const Posted& posted);

/// All members of a split have come: throws FaultError (F06) if they disagree about the
/// new groups. They may name one group differently, pass different lists of members, or
/// make a group that is not what a member expects.
void require_same_groups(const Engine& engine, const Team& team, const Meeting& meeting);

/// Returns why no rank can run. Returns nothing if every rank has ended and no launch is
/// left open.
std::optional<Diagnosis> explain_stop(const Engine& engine);

/// Returns which ranks wait for which. Ranks in one collective are one wait; they also
/// wait for the ranks that passed other arguments to this collective. If many ranks wait
/// for messages at one line, they are one wait for all of their peers.
std::vector<Diagnosis::Wait> waits_of(const Engine& engine);

/// Every rank has ended, and nothing is left open: returns the Work that no rank has
/// waited for (F19).
std::optional<Diagnosis> explain_unwaited(const Engine& engine);

/// A member destroys its communicator: returns a mistake (F31) if the program could still
/// wait for the communicator's operations. Returns nothing if the program has dropped the
/// operations' Work: to never wait for Work is another mistake.
std::optional<Diagnosis> explain_open_works(const Engine& engine, const Team& team,
                                            int member);

/// Every rank has ended: returns a communicator that some ranks have destroyed, while
/// other ranks have kept it beyond the end of their programs (F31). All ranks must
/// destroy it.
std::optional<Diagnosis> explain_kept(const Engine& engine);

/// Knows by which norms ranks have clipped their gradients.
class Clips {
  public:
    Clips() = default;
    virtual ~Clips() = default;
    Clips(const Clips&) = delete;
    Clips& operator=(const Clips&) = delete;

    /// Returns the number, from 0, of the rank's clip that has scaled the gradient;
    /// negative if it is not known.
    virtual std::int64_t clip_of(int rank, const Tensor& gradient) const = 0;
    /// Returns why this clip scales the two ranks' replicas of a gradient differently:
    /// their norms count different gradients. Returns nothing if both count the same.
    virtual std::optional<Diagnosis> explain_unlike(int one, int other,
                                                    std::int64_t clip) const = 0;
};

/// A watcher of gradient norms; `clips` points to the same object.
struct NormWatcher {
    std::unique_ptr<Watcher> watcher;
    const Clips* clips;
};

// Under CheckLevel::full. Watchers with Layouts as an argument see each call before the
// Layouts do, because they need the layouts from before the call.

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
