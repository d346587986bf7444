#include <map>

#include "sim/activity.hpp"

namespace lockstep::sim {

namespace {

using Texts = std::map<std::string, FaultText>;

Texts make_texts() {
    return {
        {"F01",
         {"collectives in different order",
          "All ranks of a communicator must call the same collectives in the same order; "
          "find where the two lines part ways and make both ranks take the same path."}},
        {"F02",
         {"counts differ",
          "Every rank must pass the same number of elements; look at how each rank "
          "computes the size of its buffer (uneven shards need padding or weights)."}},
        {"F03",
         {"data types differ",
          "Every rank must pass the same type; make the tensors with one dtype on all "
          "ranks."}},
        {"F04",
         {"reductions differ",
          "Every rank must ask for the same reduction; one of the two lines says sum "
          "where the other says something else."}},
        {"F05",
         {"roots differ",
          "Every rank must name the same root; a root that depends on the rank is the "
          "usual mistake."}},
        {"F07",
         {"a rank is missing",
          "The rank that ended never made this call. Look for an early return, or a loop "
          "that runs fewer times on it."}},
        {"F09",
         {"a message's two sizes differ",
          "A send and its recv must agree on count and type; check how each side "
          "computes its size."}},
        {"F10",
         {"a message without its other half",
          "Each send needs one recv on the other rank, and each recv one send; check the "
          "peers and how many messages each side expects."}},
        {"F11",
         {"sends and recvs wait for each other in a circle",
          "A send waits until its recv is there. Put concurrent sends and recvs into one "
          "group() or let some ranks receive first."}},
        {"F12",
         {"communicators used in opposite order",
          "Ranks that share two communicators must use them in the same order; swap the "
          "two calls on one of the ranks."}},
        {"F13",
         {"ranks took different paths",
          "A condition or loop count differs between ranks, so that they are in "
          "different calls; make it depend on values that all ranks share."}},
        {"F14",
         {"a pipeline schedule that cannot run",
          "Each stage waits for another stage's message in a circle. Check the number of "
          "warm-up forwards before the first backward, and group the send of one with "
          "the recv of the next."}},
    };
}

}  // namespace

const FaultText& fault_text(const std::string& fault) {
    static const Texts texts = make_texts();
    return texts.at(fault);
}

}  // namespace lockstep::sim
