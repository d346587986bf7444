#include "gpu/launcher/message.hpp"

namespace lockstep::gpu {

namespace {

constexpr uint64_t kMagic = 0x4c6f636b;
constexpr uint64_t kVersion = 1;

/// Least significant byte first, whatever the machine.
void put(std::string& bytes, uint64_t number, int width = 8) {
    for (int byte = 0; byte < width; ++byte)
        bytes += static_cast<char>(number >> (8 * byte));
}

/// Takes the next bytes of a message.
std::string_view take(std::string_view& rest, uint64_t bytes) {
    if (bytes > rest.size()) throw ProtocolError("a message ends too early");
    const std::string_view part = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return part;
}

uint64_t take_number(std::string_view& rest, int width = 8) {
    uint64_t number = 0;
    const std::string_view bytes = take(rest, static_cast<uint64_t>(width));
    for (int byte = width; byte-- > 0;)
        number = number << 8 | static_cast<unsigned char>(bytes[byte]);
    return number;
}

void expect_end(std::string_view rest) {
    if (!rest.empty()) throw ProtocolError("a message is too long");
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

std::string pack(const Hello& hello) {
    std::string body;
    for (const uint64_t number : {hello.version, hello.size, hello.rank, hello.token})
        put(body, number);
    return body;
}

Hello unpack_hello(std::string_view body) {
    Hello hello = {};
    for (uint64_t* number : {&hello.version, &hello.size, &hello.rank, &hello.token})
        *number = take_number(body);
    expect_end(body);
    return hello;
}

std::string pack(const Failure& failure) {
    std::string body;
    put(body, static_cast<uint64_t>(failure.rank));
    put(body, static_cast<uint64_t>(failure.status));
    return body + failure.text;
}

Failure unpack_failure(std::string_view body) {
    const int rank = static_cast<int>(take_number(body));
    const int status = static_cast<int>(take_number(body));
    return {rank, status, std::string(body)};
}

std::string pack(Pace pace) {
    std::string body;
    put(body, static_cast<uint64_t>(pace));
    return body;
}

Pace unpack_pace(std::string_view body) {
    const uint64_t pace = take_number(body);
    expect_end(body);
    if (pace >= kPaces) throw ProtocolError("an unknown pace");
    return static_cast<Pace>(pace);
}

std::string pack(const std::vector<std::string_view>& list) {
    size_t total = 8 * (list.size() + 1);
    for (const std::string_view part : list)
        total += part.size();
    std::string body;
    body.reserve(total);
    put(body, list.size());
    for (const std::string_view part : list) {
        put(body, part.size());
        body += part;
    }
    return body;
}

std::vector<std::string> unpack_list(std::string_view body) {
    std::vector<std::string> list;
    for (uint64_t left = take_number(body); left > 0; --left)
        list.emplace_back(take(body, take_number(body)));
    expect_end(body);
    return list;
}

}  // namespace lockstep::gpu
