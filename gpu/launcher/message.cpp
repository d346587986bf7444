#include "gpu/launcher/message.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::gpu {

namespace {

constexpr uint64_t kMagic = 0x4c6f636b;
constexpr uint64_t kVersion = 3;
constexpr uint64_t kLongestText = 1 << 20;
constexpr uint64_t kLongestVerdict = 4096;
constexpr uint64_t kNumberBytes = 8;  // as WireWriter writes a number or a text's size

/// Says that a peer sends messages of this kind.
struct Duty {
    Peer peer;
    MessageKind kind;
    uint64_t longest_body;  // of a result: for each process
};
constexpr Duty kDuties[] = {
    {Peer::stranger, MessageKind::hello, sizeof(Hello)},
    {Peer::stranger, MessageKind::proof, sizeof(Proof)},
    {Peer::host, MessageKind::challenge, sizeof(Nonce)},
    {Peer::host, MessageKind::verdict, kLongestVerdict},
    {Peer::member, MessageKind::all_gather, kLongestPart},
    {Peer::member, MessageKind::broadcast, 0},
    {Peer::member, MessageKind::failure, kLongestText + 3 * kNumberBytes},
    {Peer::member, MessageKind::pace, kNumberBytes},
    {Peer::member, MessageKind::description, kLongestPart},
    {Peer::member, MessageKind::goodbye, 0},
    {Peer::member, MessageKind::beat, 0},
    {Peer::root, MessageKind::welcome, 0},
    {Peer::root, MessageKind::result, kLongestPart + 2 * kNumberBytes},
    {Peer::root, MessageKind::describe, 0},
    {Peer::root, MessageKind::stop, kLongestText + 3 * kNumberBytes},
    {Peer::root, MessageKind::farewell, 0},
    {Peer::root, MessageKind::beat, 0},
};

/// The text that a proof covers.
struct Covered {
    std::string who;
    Hello hello;
    Nonce challenge;
    std::string why;
};

/// Appends a number of a header, least significant byte first on every machine. Bodies
/// use the machine's byte order.
void put(std::string& bytes, uint64_t number, int width = 8) {
    for (int byte = 0; byte < width; ++byte)
        bytes += static_cast<char>(number >> (8 * byte));
}

/// Reads the next number of a header.
uint64_t take_number(std::string_view& rest, int width = 8) {
    if (rest.size() < static_cast<size_t>(width))
        throw ProtocolError("a message ends too early");
    uint64_t number = 0;
    for (int byte = width; byte-- > 0;)
        number = number << 8 | static_cast<unsigned char>(rest[byte]);
    rest.remove_prefix(static_cast<size_t>(width));
    return number;
}

}  // namespace

std::string header_bytes(const Message& message) {
    std::string bytes;
    put(bytes, kMagic, 4);
    put(bytes, static_cast<uint64_t>(message.kind), 4);
    put(bytes, message.sequence);
    put(bytes, message.body->size());
    return bytes;
}

Header read_header(std::string_view bytes) {
    if (take_number(bytes, 4) != kMagic) throw ProtocolError("no message of Lockstep");
    const uint64_t kind = take_number(bytes, 4);
    if (kind >= kMessageKinds) throw ProtocolError("an unknown kind of message");
    const uint64_t sequence = take_number(bytes);
    return {static_cast<MessageKind>(kind), sequence, take_number(bytes)};
}

void require_expected(const Header& header, Peer peer, int processes) {
    const Duty* const duty = std::find_if(
        std::begin(kDuties), std::end(kDuties),
        [&](const Duty& one) { return one.peer == peer && one.kind == header.kind; });
    if (duty == std::end(kDuties)) throw ProtocolError("a message that only others send");
    const uint64_t times =
        header.kind == MessageKind::result ? static_cast<uint64_t>(processes) : 1;
    if (header.body_bytes > times * duty->longest_body)
        throw ProtocolError(
            fmt::format("a message of {} bytes, where at most {} are expected",
                        header.body_bytes, times * duty->longest_body));
}

Hello hello_of(const Placement& placement) {
    return {kVersion, static_cast<uint64_t>(placement.size),
            static_cast<uint64_t>(placement.rank),
            hash_text(placement.rendezvous.address), fresh_nonce()};
}

Proof proof_of_member(std::string_view secret, const Hello& hello,
                      const Nonce& challenge) {
    return prove(secret, pack(Covered{"a member of a run", hello, challenge, ""}));
}

Proof proof_of_root(std::string_view secret, const Hello& hello, const Nonce& challenge,
                    const std::string& why) {
    return prove(secret, pack(Covered{"rank 0 of a run", hello, challenge, why}));
}

std::string pack_failure(Failure failure) {
    failure.text.resize(std::min<size_t>(failure.text.size(), kLongestText));
    return pack(failure);
}

Failure unpack_failure(std::string_view body) {
    auto failure = unpack<Failure>(body);
    if (failure.status < 1 || failure.status > 255) failure.status = 1;
    return failure;
}

}  // namespace lockstep::gpu
