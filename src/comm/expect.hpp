#pragma once

#include <string>

#include "src/comm/communicator.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep {

// A strategy's own code asserts this about itself. Always looked at, on every backend.

/// Every rank of the group holds the same bits in `tensor`; every rank calls this, in the
/// same order among its calls for this group. FaultError (F24) names the ranks that
/// differ, the first element that does, and its values on both sides. A NaN equals the
/// same NaN; a run that computes shapes only compares shapes.
///
///     expect_replicated(replicas, weight, "hidden.weight");
///
/// On virtual devices this costs no time and no bytes, and a difference ends the run when
/// all ranks have called. Elsewhere it is an all-gather of a few bytes, more only where
/// something differs, and it waits for the other ranks.
void expect_replicated(Communicator& group, const Tensor& tensor,
                       const std::string& name = "", SourceLine at = SourceLine::here());

/// Says of a parameter that every rank of the group holds a replica of it, which must
/// step alike; each rank says so of its own, once. Costs nothing and compares nothing by
/// itself: under --check full, virtual devices then find F23 where ranks step with
/// gradients of their own.
void declare_replicas(Communicator& group, const Tensor& tensor, const std::string& name,
                      SourceLine at = SourceLine::here());

/// Says of what ranks read, a batch say, that it is the same on all; every rank of the
/// group says so, in the same order. Costs nothing: under --check full, virtual devices
/// compare it as expect_replicated does, elsewhere nobody looks.
void declare_same(Communicator& group, const Tensor& tensor, const std::string& name,
                  SourceLine at = SourceLine::here());
/// Says so of values that are not on a device yet: of whole sequences, of which each rank
/// takes its stretch.
void declare_same(Communicator& group, const HostTensor& values, const std::string& name,
                  SourceLine at = SourceLine::here());

/// The bytes that this rank sends over a communicator from here on:
///
///     const ByteCount sent(replicas);
///     replicas.all_reduce(gradient).wait();
///     expect_bytes(sent, 2 * (n - 1) * gradient.bytes() / n);
///
/// Counts what is done: on both of its ends nothing may be in flight over the
/// communicator, that is, all its Work so far has been waited for; else UsageError.
/// Communicators split off it count apart.
class ByteCount {
  public:
    explicit ByteCount(const Communicator& communicator,
                       SourceLine at = SourceLine::here());

    const Communicator& communicator() const { return communicator_; }
    /// The run whose bytes are counted.
    int rank() const;
    /// Since it was made, by verb.
    BytesByVerb by_verb(SourceLine at = SourceLine::here()) const;
    /// Counts all verbs together.
    std::int64_t bytes(SourceLine at = SourceLine::here()) const;
    SourceLine begun_at() const { return at_; }

  private:
    const Communicator& communicator_;
    SourceLine at_;
    BytesByVerb before_;
};

/// This rank has sent `bytes` since the count was begun; FaultError (F27) says how many
/// it has, and by which operations.
void expect_bytes(const ByteCount& sent, std::int64_t bytes,
                  SourceLine at = SourceLine::here());

/// One side of a tensor that should be the same on all ranks, for messages.
struct ReplicaSide {
    std::vector<int> ranks;
    std::string value;  ///< of the first element that differs, or the shape and dtype
    SourceLine at;
    SourceLine made_at{};  ///< the line that made the tensor, if it is known
};

/// Returns what expect_replicated says of two sides; the first is the usual one.
/// `element` is where the values stand ("element [0, 3]") and `differing` how much else
/// differs ("5 of 64 elements differ"), both empty where the shapes differ.
Diagnosis replicas_differ(const std::string& group, const std::vector<int>& members,
                          const std::string& name, const std::vector<ReplicaSide>& sides,
                          const std::string& element, const std::string& differing);
/// Returns what declare_same says of them.
Diagnosis reads_differ(const std::string& group, const std::vector<int>& members,
                       const std::string& name, const std::vector<ReplicaSide>& sides,
                       const std::string& element, const std::string& differing);

}  // namespace lockstep
