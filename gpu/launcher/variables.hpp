#pragma once

#include <string>

#include "gpu/launcher/placement.hpp"

namespace lockstep::gpu {

/// The variables that one launcher sets. Every error names the variable, its value and
/// what was expected.
class Variables {
  public:
    /// `launcher` is what set them; `sign` the variable it was recognised by.
    Variables(const Environment& environment, std::string launcher, std::string sign);

    bool has(const std::string& name) const;
    /// UsageError where it is not set.
    std::string text(const std::string& name) const;
    /// UsageError where it is not set, or no number from `least` to `most`.
    int number(const std::string& name, int least, int most) const;

    const Environment& environment() const { return environment_; }
    const std::string& launcher() const { return launcher_; }

  private:
    const Environment& environment_;
    std::string launcher_;
    std::string sign_;
};

/// How a launcher calls what we need to know.
struct VariableNames {
    const char* rank;
    const char* size;
    const char* local_rank;
    const char* local_size;
};

/// A placement from four numbers, checked against each other; without a meeting place.
Placement read_placement(const Variables& variables, const VariableNames& names);

/// The address that the environment gives under every launcher: LOCKSTEP_RENDEZVOUS, or
/// beside NCCL_COMM_ID. Otherwise, where all processes are on this machine, a socket
/// named after `job` (the same text in all of them, another in every other run) and the
/// user; else `address`, and UsageError where that is empty.
Rendezvous choose_rendezvous(const Variables& variables, const Placement& placement,
                             const std::string& job, const std::string& address);

/// The port after this one, where its owner may be listening itself.
int port_beside(int port);

/// A number that depends on all of the text, and is the same on every machine.
unsigned long long hash_text(const std::string& text);

}  // namespace lockstep::gpu
