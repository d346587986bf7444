#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/launcher/control.hpp"
#include "gpu/launcher/pace.hpp"
#include "gpu/launcher/secret.hpp"
#include "src/core/wire.hpp"

namespace lockstep {
template <>
inline constexpr std::int64_t kLast<gpu::Pace> =
    static_cast<std::int64_t>(gpu::Pace::stuck);
}

namespace lockstep::gpu {

/// The kinds of messages on the control line, and who sends them.
enum class MessageKind : uint32_t {
    hello,        ///< stranger: its Hello
    challenge,    ///< root, to a stranger: its own Nonce
    proof,        ///< stranger: its Proof
    verdict,      ///< root, to a stranger that knows the secret (Verdict)
    welcome,      ///< root: all processes are here
    all_gather,   ///< member: its bytes for an exchange
    broadcast,    ///< member: it takes part in this exchange, without bytes
    result,       ///< root: the result of the exchange (a list)
    failure,      ///< member: stop the run (Failure)
    pace,         ///< member: its program's new pace (Pace)
    describe,     ///< root: what is your program doing?
    description,  ///< member: the answer
    stop,         ///< root: the run has been stopped (Failure)
    goodbye,      ///< member: it leaves as planned
    farewell,     ///< root: the answer to a goodbye
    beat,         ///< both: the sender runs
};
constexpr uint32_t kMessageKinds = 16;

/// Bytes that several connections may send at the same time.
using Bytes = std::shared_ptr<const std::string>;

struct Message {
    MessageKind kind = MessageKind::hello;
    uint64_t sequence = 0;  ///< number of the exchange; 0 for other kinds
    Bytes body;             ///< never null

    Message(MessageKind kind_, std::string body_ = {}, uint64_t sequence_ = 0)
        : kind(kind_),
          sequence(sequence_),
          body(std::make_shared<const std::string>(std::move(body_))) {}
};

/// Thrown if the other side breaks the protocol.
class ProtocolError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Comes before each body: a magic number, the kind, the sequence, the body's length.
constexpr size_t kHeaderBytes = 24;
struct Header {
    MessageKind kind;
    uint64_t sequence;
    uint64_t body_bytes;
};
std::string header_bytes(const Message& message);
/// Throws ProtocolError if the magic number or the kind is not ours.
Header read_header(std::string_view bytes);

/// Who is at the other side of a connection.
enum class Peer {
    stranger,  ///< has connected to rank 0, and has not proved that it knows the secret
    host,      ///< answers at rank 0's address, and has not proved it either
    member,    ///< a process of this run
    root,      ///< rank 0
};
/// The longest bytes of one process in an exchange.
constexpr uint64_t kLongestPart = uint64_t{1} << 30;
/// Throws ProtocolError if this peer of a run with `processes` processes never sends such
/// a message: it does not send the kind, or its bodies of this kind are shorter.
void require_expected(const Header& header, Peer peer, int processes);

/// The first message of a process.
struct Hello {
    uint64_t version;
    uint64_t size;
    uint64_t rank;
    uint64_t token;  ///< of the rendezvous
    Nonce nonce;     ///< rank 0 proves that it knows the secret and this number
};
/// Returns the first message of a process with this placement, with a fresh nonce.
Hello hello_of(const Placement& placement);

/// Rank 0's answer to a process that has proved that it knows the secret.
struct Verdict {
    std::string why;  ///< why the process is refused; empty: it is admitted
    Proof proof;
};

/// Each side's proof of one meeting. A proof says who gives it, and covers both sides'
/// nonces, so that it is of no use in another meeting.
Proof proof_of_member(std::string_view secret, const Hello& hello,
                      const Nonce& challenge);
Proof proof_of_root(std::string_view secret, const Hello& hello, const Nonce& challenge,
                    const std::string& why);

/// Returns the body for a Failure. Texts of more than a MiB are cut.
std::string pack_failure(Failure failure);
/// Reads a Failure. Its status is one of a failed process.
Failure unpack_failure(std::string_view body);

/// Returns the body for a Hello, a Verdict, a Pace, or a list of texts.
template <typename T>
std::string pack(const T& content) {
    WireWriter out;
    out(content);
    return std::move(out.bytes());
}

/// Reads a body. Throws ProtocolError if the body is not a T.
template <typename T>
T unpack(std::string_view body) {
    try {
        WireReader in(body);
        T content = in.get<T>();
        in.end();
        return content;
    } catch (const WireError& error) {
        throw ProtocolError(error.what());
    }
}

}  // namespace lockstep::gpu
