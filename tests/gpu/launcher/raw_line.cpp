#include "tests/gpu/launcher/raw_line.hpp"

#include <poll.h>
#include <stdexcept>

namespace lockstep::gpu {

RawLine::RawLine(const std::string& address)
    : line_(connect_to(parse_address(address, "the test's address"),
                       Clock::now() + std::chrono::seconds(100)),
            Peer::host) {}

std::optional<Message> RawLine::hear() {
    for (;;) {
        if (std::optional<Message> message = line_.next()) return message;
        if (!line_.open()) return std::nullopt;
        pollfd wait = {line_.number(), line_.events(), 0};
        poll(&wait, 1, -1);
        line_.transfer(wait.revents);
    }
}

void RawLine::skip_to(MessageKind kind) {
    for (auto message = hear(); message && message->kind != kind;)
        message = hear();
}

Nonce RawLine::greet(const Hello& hello) {
    send({MessageKind::hello, pack(hello)});
    const auto challenge = hear();
    if (!challenge) throw std::runtime_error("no challenge");
    return unpack<Nonce>(*challenge->body);
}

std::string RawLine::enter(const Hello& hello, const std::string& secret) {
    const Nonce challenge = greet(hello);
    send({MessageKind::proof, pack(proof_of_member(secret, hello, challenge))});
    const auto answer = hear();
    if (!answer) throw std::runtime_error("no verdict");
    const auto verdict = unpack<Verdict>(*answer->body);
    if (!same(verdict.proof, proof_of_root(secret, hello, challenge, verdict.why)))
        throw std::runtime_error("no proof");
    line_.trust(Peer::root, static_cast<int>(hello.size));
    return verdict.why;
}

}  // namespace lockstep::gpu
