#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "gpu/launcher/placement.hpp"

namespace lockstep::gpu {

// Processes that meet at host:port prove to each other that they know the run's secret.
// The secret itself is never sent. At unix:NAME the system says which user a process
// belongs to, so the secret may be empty there.

/// A random number that is used once.
using Nonce = std::array<std::uint64_t, 4>;
/// A number that only those can compute who know the secret.
using Proof = std::array<std::uint64_t, 4>;

/// Returns random bits of the system, which nobody can guess.
Nonce fresh_nonce();
/// Returns a new secret of 256 random bits.
std::string fresh_secret();

/// Returns the text of LOCKSTEP_SECRET, or else of the file that LOCKSTEP_SECRET_FILE
/// names, without white space at its end; empty if neither variable is set. Throws
/// UsageError if the text has fewer than 32 characters, if the file cannot be read or
/// belongs to another user, or if others have rights to it.
std::string find_secret(const Environment& environment);

/// Throws UsageError if several processes meet at host:port without a secret.
void require_secret(const Placement& placement);

/// Returns HMAC-SHA256 of the text (RFC 2104).
Proof prove(std::string_view secret, std::string_view text);

/// Returns true if the proofs are equal. The time it takes does not depend on the bits.
bool same(const Proof& one, const Proof& other);

}  // namespace lockstep::gpu
