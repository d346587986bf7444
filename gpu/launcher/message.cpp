#include "gpu/launcher/message.hpp"

#include <string_view>

#include "gpu/launcher/variables.hpp"

namespace lockstep::gpu {

namespace {

constexpr uint64_t kMagic = 0x4c6f636b;
constexpr uint64_t kVersion = 1;

/// Least significant byte first, whatever the machine.
void put(std::string& bytes, uint64_t number, int width = 8) {
    for (int byte = 0; byte < width; ++byte)
        bytes += static_cast<char>(number >> (8 * byte));
}

class Reader {
  public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}

    uint64_t number(int width = 8) {
        uint64_t number = 0;
        const std::string_view bytes = text(static_cast<uint64_t>(width));
        for (int byte = width; byte-- > 0;)
            number = number << 8 |
                     static_cast<unsigned char>(bytes[static_cast<size_t>(byte)]);
        return number;
    }

    std::string_view text(uint64_t bytes) {
        if (bytes > rest_.size()) throw ProtocolError("a message ends too early");
        const std::string_view part = rest_.substr(0, bytes);
        rest_.remove_prefix(bytes);
        return part;
    }

    void expect_end() const {
        if (!rest_.empty()) throw ProtocolError("a message is too long");
    }

  private:
    std::string_view rest_;
};

}  // namespace

Message::Message(MessageKind kind_, std::string body_, uint64_t sequence_)
    : Message(kind_, std::make_shared<const std::string>(std::move(body_)), sequence_) {}

Message::Message(MessageKind kind_, Bytes body_, uint64_t sequence_)
    : kind(kind_), sequence(sequence_), body(std::move(body_)) {}

std::string header_bytes(const Message& message) {
    std::string bytes;
    put(bytes, kMagic, 4);
    put(bytes, static_cast<uint64_t>(message.kind), 4);
    put(bytes, message.sequence);
    put(bytes, message.body->size());
    return bytes;
}

Header read_header(const std::string& bytes) {
    Reader reader(bytes);
    if (reader.number(4) != kMagic) throw ProtocolError("no message of Lockstep");
    const uint64_t kind = reader.number(4);
    if (kind >= kMessageKinds) throw ProtocolError("an unknown kind of message");
    const uint64_t sequence = reader.number();
    return {static_cast<MessageKind>(kind), sequence, reader.number()};
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

Hello unpack_hello(const std::string& body) {
    Reader reader(body);
    Hello hello = {};
    for (uint64_t* number : {&hello.version, &hello.size, &hello.rank, &hello.token})
        *number = reader.number();
    reader.expect_end();
    return hello;
}

std::string pack(const Failure& failure) {
    std::string body;
    put(body, static_cast<uint64_t>(failure.rank));
    put(body, static_cast<uint64_t>(failure.status));
    return body + failure.text;
}

Failure unpack_failure(const std::string& body) {
    Reader reader(body);
    Failure failure;
    failure.rank = static_cast<int>(reader.number());
    failure.status = static_cast<int>(reader.number());
    failure.text = reader.text(body.size() - 16);
    return failure;
}

std::string pack(Pace pace) {
    std::string body;
    put(body, static_cast<uint64_t>(pace));
    return body;
}

Pace unpack_pace(const std::string& body) {
    Reader reader(body);
    const uint64_t pace = reader.number();
    reader.expect_end();
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

std::vector<std::string> unpack_list(const std::string& body) {
    Reader reader(body);
    std::vector<std::string> list;
    for (uint64_t left = reader.number(); left > 0; --left)
        list.emplace_back(reader.text(reader.number()));
    reader.expect_end();
    return list;
}

}  // namespace lockstep::gpu
