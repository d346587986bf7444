#include "gpu/launcher/message.hpp"

namespace lockstep::gpu {

namespace {

constexpr uint64_t kMagic = 0x4c6f636b;
constexpr uint64_t kVersion = 2;

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

Hello hello_of(const Placement& placement) {
    return {kVersion, static_cast<uint64_t>(placement.size),
            static_cast<uint64_t>(placement.rank),
            hash_text(placement.rendezvous.address)};
}

}  // namespace lockstep::gpu
