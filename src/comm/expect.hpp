#pragma once

#include <string>

#include "src/comm/communicator.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep {

// Assertions that a strategy makes about itself. expect_replicated and expect_bytes are
// always checked, on every backend; the declarations only under --check full.

/// Asserts that every rank of the group has the same bits in `tensor`. Every rank of the
/// group must make the same calls, in the same order. FaultError (F24) names the ranks
/// that differ, the first element that differs, and the values on both sides. A NaN
/// equals the same NaN. In a shapes-only run, only shapes are compared.
///
///     expect_replicated(replicas, weight, "hidden.weight");
///
/// On virtual devices the call costs no time and no bytes, and a difference ends the run
/// when all ranks have called. On other backends the call is an all-gather of a few bytes
/// (more bytes only if values differ), and waits for the other ranks.
void expect_replicated(Communicator& group, const Tensor& tensor,
                       const std::string& name = "", SourceLine at = SourceLine::here());

/// Declares that every rank of the group holds a replica of a parameter, and that all
/// replicas must be updated equally. Each rank declares its own replica, once. The call
/// itself costs nothing. Under --check full, virtual devices then report ranks that
/// update their replicas with different gradients (F23).
void declare_replicas(Communicator& group, const Tensor& tensor, const std::string& name,
                      SourceLine at = SourceLine::here());

/// Declares that data which the ranks read, such as a batch, is the same on all of them.
/// Every rank of the group must make the same calls, in the same order. A call costs
/// nothing. Under --check full, virtual devices compare the data as expect_replicated
/// does; other backends do not.
void declare_same(Communicator& group, const Tensor& tensor, const std::string& name,
                  SourceLine at = SourceLine::here());
/// Declares values that are not on a device yet, such as whole sequences of which each
/// rank uploads its part.
void declare_same(Communicator& group, const HostTensor& values, const std::string& name,
                  SourceLine at = SourceLine::here());

/// The bytes that this rank sends over a communicator from here on:
///
///     const ByteCount sent(replicas);
///     replicas.all_reduce(gradient).wait();
///     expect_bytes(sent, 2 * (n - 1) * gradient.bytes() / n);
///
/// Counts only completed operations. When a count begins and when it is read, nothing may
/// be in flight over the communicator: the program must have waited for all its Work.
/// Otherwise UsageError. Communicators that are split off have their own counts.
class ByteCount {
  public:
    explicit ByteCount(const Communicator& communicator,
                       SourceLine at = SourceLine::here());

    const Communicator& communicator() const { return communicator_; }
    /// Returns the rank in the run whose bytes are counted.
    int rank() const;
    /// Returns the bytes since the count was made, by verb.
    BytesByVerb by_verb(SourceLine at = SourceLine::here()) const;
    /// Returns the bytes of all verbs together.
    std::int64_t bytes(SourceLine at = SourceLine::here()) const;
    SourceLine begun_at() const { return at_; }

  private:
    const Communicator& communicator_;
    SourceLine at_;
    BytesByVerb before_;
};

/// Asserts that this rank has sent `bytes` since the count began. If not, FaultError
/// (F27) names the number of bytes that it has sent with each verb.
void expect_bytes(const ByteCount& sent, std::int64_t bytes,
                  SourceLine at = SourceLine::here());

/// Ranks that have the same values of a tensor, for a message about ranks that differ.
struct ReplicaSide {
    std::vector<int> ranks;
    std::string value;  ///< the first element that differs, or the shape and dtype
    SourceLine at;
    SourceLine made_at{};  ///< the line that made the tensor, if it is known
};

/// Returns the diagnosis of expect_replicated. Of two or more `sides`, the first has the
/// most ranks. `element` is the place of the values ("element [0, 3]"); `differing` is a
/// text: "5 of 64 elements differ". Both are empty if the shapes or dtypes differ.
Diagnosis replicas_differ(const std::string& group, const std::vector<int>& members,
                          const std::string& name, const std::vector<ReplicaSide>& sides,
                          const std::string& element, const std::string& differing);
/// Returns the diagnosis of declare_same, with the same arguments.
Diagnosis reads_differ(const std::string& group, const std::vector<int>& members,
                       const std::string& name, const std::vector<ReplicaSide>& sides,
                       const std::string& element, const std::string& differing);

}  // namespace lockstep
