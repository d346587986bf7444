#include "gpu/launcher/secret.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sha2.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::gpu {

namespace {

constexpr size_t kShortestSecret =
    32;  // 128 bits, if it is written in hexadecimal digits
constexpr size_t kLongestSecret = 4096;
constexpr mode_t kRightsOfOthers = S_IRWXG | S_IRWXO;

/// Returns the file's beginning, a byte more than a secret may have. Throws UsageError if
/// somebody else can read or change the file.
std::string secret_file(const std::string& path) {
    const auto expect = [&](bool condition, const std::string& wrong) {
        require(condition, "LOCKSTEP_SECRET_FILE: {} {}", path, wrong);
    };
    const os::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat facts = {};
    expect(file.open() && fstat(file.number(), &facts) == 0,
           fmt::format("cannot be read: {}", std::strerror(errno)));
    expect(S_ISREG(facts.st_mode), "is no file");
    expect(facts.st_uid == geteuid(),
           "belongs to another user: make a file of your own for the secret");
    expect((facts.st_mode & kRightsOfOthers) == 0,
           fmt::format("can be read or changed by others: run chmod 600 {}", path));
    std::string text(kLongestSecret + 1, '\0');
    const ssize_t got = os::read_some(file.number(), text.data(), text.size());
    expect(got >= 0, fmt::format("cannot be read: {}", std::strerror(errno)));
    text.resize(static_cast<size_t>(got));
    return text;
}

using Digest = std::array<std::uint8_t, SHA256_DIGEST_LENGTH>;

Digest hash(std::string_view first, std::string_view second) {
    SHA2_CTX state;
    SHA256Init(&state);
    for (const std::string_view part : {first, second})
        SHA256Update(&state, reinterpret_cast<const std::uint8_t*>(part.data()),
                     part.size());
    Digest digest;
    SHA256Final(digest.data(), &state);
    return digest;
}

std::string_view text_of(const Digest& digest) {
    return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Nonce fresh_nonce() {
    Nonce nonce;
    if (getrandom(nonce.data(), sizeof nonce, 0) != ssize_t{sizeof nonce})
        throw std::system_error(errno, std::generic_category(), "no random numbers");
    return nonce;
}

std::string fresh_secret() {
    std::string digits;
    for (const std::uint64_t number : fresh_nonce())
        digits += fmt::format("{:016x}", number);
    return digits;
}

std::string find_secret(const Environment& environment) {
    std::string from = "LOCKSTEP_SECRET";
    std::optional<std::string> secret = environment(from);
    if (const auto path = environment("LOCKSTEP_SECRET_FILE"); path && !secret) {
        from = "LOCKSTEP_SECRET_FILE: " + *path;
        secret = secret_file(*path);
    }
    if (!secret) return {};
    secret->erase(secret->find_last_not_of(" \t\r\n") + 1);
    require(secret->size() >= kShortestSecret && secret->size() <= kLongestSecret,
            "{} has {} {} characters; a secret has {} to {}", from,
            secret->size() > kLongestSecret ? "more than" : "only",
            std::min(secret->size(), kLongestSecret), kShortestSecret, kLongestSecret);
    return *secret;
}

void require_secret(const Placement& placement) {
    const Rendezvous& meeting = placement.rendezvous;
    require(placement.size == 1 || !meeting.secret.empty() ||
                meeting.address.starts_with("unix:"),
            "processes that meet at {} need a secret, because anybody can connect there: "
            "make one with (umask 077; head -c 32 /dev/urandom | base64 > "
            "~/.lockstep-secret), and give all processes a copy of this file with "
            "LOCKSTEP_SECRET_FILE=$HOME/.lockstep-secret",
            meeting.address);
}

Proof prove(std::string_view secret, std::string_view text) {
    std::array<char, SHA256_BLOCK_LENGTH> key = {};
    const Digest short_secret = hash(secret, {});
    if (secret.size() > key.size()) secret = text_of(short_secret);
    std::copy(secret.begin(), secret.end(), key.begin());
    const auto padded = [&](char pad) {
        std::string block;
        for (const char byte : key)
            block += static_cast<char>(byte ^ pad);
        return block;
    };
    const Digest inner = hash(padded(0x36), text);
    const Digest outer = hash(padded(0x5c), text_of(inner));
    Proof proof;
    static_assert(sizeof proof == sizeof outer);
    std::memcpy(proof.data(), outer.data(), sizeof proof);
    return proof;
}

bool same(const Proof& one, const Proof& other) {
    std::uint64_t difference = 0;
    for (size_t i = 0; i < one.size(); ++i)
        difference |= one[i] ^ other[i];
    return difference == 0;
}

}  // namespace lockstep::gpu
