#pragma once

// This list says which file finds which class of mistake (src/run/fault_text.cpp lists
// the classes). A file is named after what it checks; it has the rule and the messages.
//
// Always on, for calls that ranks make together and for runs that stop:
//
//     mismatch        F01 to F05, F08, F09        ranks, or a send and a recv, differ,
//                     F26                         or add up different parameters
//     out_of_step     F13                         ranks are at different calls
//     group_making    F06                         members of a split disagree
//     deadlock        F07, F10 to F14             nothing can run: who waits for whom
//     checker         F07, F24                    expect_replicated, declare_same
//     unfinished      F19, F31                    Work that was never waited for,
//                                                 communicators that some ranks have kept
//
// F15 (group), F20 (aliasing), F24 and F27 (expect) are found in src/comm, F30 (ledger)
// in src/device, on every backend. checker calls all of the files above for the engine;
// activity describes what the ranks do meanwhile.
//
// Watchers (sim/watcher.hpp), only under CheckLevel::full:
//
//     in_flight       F16 to F18     buffers touched while in use (uses vector_clock)
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
//     alike           F22, F26       numbers that are alike on ranks and should differ
//     streams         F29            random numbers
//     reference       F21, F27, F28  the result, compared with that of one device
//
// Watchers that follow values through memory are trackers (shadow) and know what made the
// values (origin). gradient_terms finds no mistakes; if another watcher finds gradients
// that differ, gradient_terms tells which ranks' terms are missing. rollcall compares
// what the members of a team claim about one tensor or value.

#include <cstdint>
#include <memory>
#include <optional>

#include "sim/watcher.hpp"

namespace lockstep::sim {

class Layouts;
class TermsTracker;

// Always on. Call these functions only while the run is quiet, except explain_open_works.

/// Returns why a collective or a message cannot go on: its members passed different
/// arguments, or its send and recv differ. `posted` is any of its operations.
Diagnosis explain_difference(const Engine& engine, const Posted& posted);

/// Throws FaultError (F06) if the members of a split, which have all called it, disagree
/// about the new groups. They may name one group differently, pass different lists of
/// members, or make a group that is not what a member expects.
void require_same_groups(const Engine& engine, const Team& team, const Meeting& meeting);

/// Returns why no rank can run. Returns nothing if every rank has ended and no launch is
/// left open.
std::optional<Diagnosis> explain_stop(const Engine& engine);

/// Returns which ranks wait for which. Ranks in one collective are one entry; they also
/// wait for the ranks that passed other arguments to this collective. If many ranks wait
/// for messages at one line, they are one entry, which waits for all of their peers.
std::vector<Diagnosis::Wait> waits_of(const Engine& engine);

/// Returns the Work that no rank has waited for (F19). Every rank must have ended, with
/// no launch left open.
std::optional<Diagnosis> explain_unwaited(const Engine& engine);

/// Returns a mistake (F31) if a member destroys its communicator while its program can
/// still wait for the communicator's operations. Returns nothing if the program has
/// dropped the Work of these operations: that is another mistake (F19).
std::optional<Diagnosis> explain_open_works(const Engine& engine, const Team& team,
                                            int member);

/// Returns a communicator that some ranks have destroyed, while other ranks have kept it
/// beyond the end of their programs (F31). Every rank must have ended.
std::optional<Diagnosis> explain_kept(const Engine& engine);

/// The norms by which ranks have clipped their gradients.
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

/// A watcher of gradient norms; `watcher` and `clips` point to the same object.
struct NormWatcher {
    std::unique_ptr<Watcher> watcher;
    const Clips* clips;
};

// Under CheckLevel::full. Watchers that use Layouts see each call before Layouts sees it,
// because they need the layouts from before the call.

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
std::unique_ptr<Watcher> watch_alike(Engine& engine);
std::unique_ptr<Watcher> watch_shards(Engine& engine);
std::unique_ptr<Watcher> watch_reference(Engine& engine);

}  // namespace lockstep::sim
