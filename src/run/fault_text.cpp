#include "src/run/fault_text.hpp"

#include <algorithm>
#include <iterator>

#include "src/run/run_report.hpp"

namespace lockstep {

namespace {

constexpr FaultClass kClasses[] = {
    {"F01", "collectives in different order",
     "All ranks of a communicator must call the same collectives in the same "
     "order. Look for the condition before one of the two lines that holds on some "
     "ranks only, and let all ranks take the same path."},
    {"F02", "counts differ",
     "Every rank must pass the same number of elements. Look at the line that makes "
     "the buffer: its size must be the same on every rank (uneven shards need "
     "padding or weights)."},
    {"F03", "data types differ",
     "Both sides must pass the same type. Look at the lines that make the tensors: "
     "use one dtype on all ranks."},
    {"F04", "reductions differ",
     "Every rank must ask for the same reduction; change the ranks that differ from the "
     "others."},
    {"F05", "roots differ",
     "Every rank must name the same root; a root that depends on the rank is the "
     "usual mistake."},
    {"F06", "ranks disagree about a group",
     "All ranks of a communicator, members or not, must make the same groups in the "
     "same order, each with one name and one list of members. Call subgroup() for "
     "every group on every rank, also for those of other ranks, and compute names, "
     "sizes and members from values that are the same on every rank."},
    {"F07", "a rank is missing",
     "All ranks must make this call, but the ranks that ended did not make it. Look for "
     "a condition around the call, for an early return, or for a loop that runs fewer "
     "times on some ranks."},
    {"F08", "split sizes do not fit",
     "On rank i, send_counts[j] must equal recv_counts[i] on rank j. Exchange the counts "
     "first and do not change them afterwards, or compute both from one table."},
    {"F09", "a message's two sizes differ",
     "A send and its recv must agree on the count. Look at the two lines that make the "
     "buffers; if other ranks exchange the same tensor, their count shows which of the "
     "two is wrong."},
    {"F10", "a message without its other half",
     "Each send needs one recv on the other rank, and each recv one send. Look at "
     "the condition or the loop around the half that is missing: which peers, or how "
     "many messages, does it leave out?"},
    {"F11", "sends and recvs wait for each other in a circle",
     "A send waits until its recv is there, and a recv until its send is. Put a "
     "rank's send and recv into one group(), or let some ranks send first and the "
     "others receive first."},
    {"F12", "communicators used in opposite order",
     "Ranks that share two communicators must launch on them in the same order: move one "
     "of the calls so that the order is the same on all ranks; if only some ranks make a "
     "call, let all ranks make it. Waiting between the two calls does not help."},
    {"F13", "ranks took different paths",
     "A condition or loop count before these lines differs between ranks; make it depend "
     "on values that are the same on all ranks (reduce a loss over the ranks first)."},
    {"F14", "a pipeline schedule that cannot run",
     "Each stage waits for another stage's message in a circle. Check the number of "
     "warm-up forwards before the first backward (one for each later stage), and put the "
     "send of one micro-batch and the recv of the next into one group()."},
    {"F15", "a group is misused",
     "Open a group, fill it, and call start() exactly once; make a new group() each "
     "time. Until start(), the communicator accepts no other call."},
    {"F16", "a buffer is read before it has arrived",
     "The communication still runs beside the device. Call wait() on its Work "
     "before the line that reads the buffer."},
    {"F17", "a buffer is overwritten while it is in use",
     "The communication still runs beside the device and uses the buffer. Call "
     "wait() on its Work before the line that writes (in a loop, before the next "
     "turn writes), or write to another buffer."},
    {"F18", "a buffer is freed while it is in use",
     "Keep the tensor (in a variable or a list that lives long enough) until wait() "
     "has returned: its memory may be given to something else while the "
     "communication still uses it."},
    {"F19", "a communication that was never waited for",
     "Keep the Work that the call returns, and call wait() on it, or on a later one of "
     "the same communicator, before the program ends; without that you cannot know when "
     "the values have arrived."},
    {"F20", "buffers overlap",
     "Give one of the two operations its own buffer; if it is a single operation, give "
     "its input or its output one. Operations may share a buffer only if none of them "
     "writes to it, and one may work in place only as its rule allows."},
    {"F21", "averaged wrongly",
     "The mean over all samples adds each sample's gradient once and divides once, by "
     "the number of all samples: divide only once, by the size of the group that was "
     "summed over."},
    {"F22", "reduced twice",
     "The values are already reduced over this group; remove one of the two reductions."},
    {"F23", "a reduction is missing",
     "Each rank holds only its part of this gradient: sum it over the group before "
     "the line that uses it, or let the loop that reduces the others include it."},
    {"F24", "replicas have drifted apart",
     "Replicas must start from the same values and take the same steps: use one seed, "
     "broadcast or load the same state on every rank, and step with the same gradient. "
     "Different experts are not replicas: reduce each expert only over the ranks that "
     "hold it."},
    {"F25", "stale weights",
     "Forward and backward of a micro-batch must use one version of the weights; "
     "gather them again after each step, or let the step write to a copy while "
     "forward's version is still needed."},
    {"F26", "shards in the wrong places",
     "Shards must be gathered in the order in which they were distributed: use the same "
     "communicator for both, or make the other one with the same order of ranks (the key "
     "of its split)."},
    {"F27", "gradients accumulated wrongly",
     "Zero the gradients before the first micro-batch of each step, give each "
     "micro-batch its share of the whole batch, add up all of them, and reduce once "
     "after the last."},
    {"F28", "a mean of unequal means",
     "Ranks with fewer rows count as much as those with more. Weight each part by "
     "its number of rows over the number of all rows, and sum."},
    {"F29", "random numbers are shared wrongly",
     "Ranks with different data (data parallelism) need different dropout masks, and "
     "ranks with the same activations (tensor parallelism) need the same mask: put the "
     "replica's number into the seed, but no other part of the rank."},
    {"F30", "a device is out of memory",
     "See which lines hold most: free activations as soon as backward has used "
     "them, keep fewer micro-batches in flight, or shard what every device holds."},
    {"F31", "a communicator is destroyed too early, or not on all ranks",
     "Wait for all work of a communicator before you destroy it, destroy it on all of "
     "its ranks before their programs end, and do not use it afterwards."},
};

}  // namespace

bool can_be_intended(const std::string& fault) {
    return fault.size() == 3 && fault >= "F21" && fault <= "F29";
}

std::span<const FaultClass> fault_classes() {
    return kClasses;
}

std::string fault_page(const std::string& fault) {
    return "lessons/faults/" + fault + ".md";
}

Diagnosis diagnosis_of(const std::string& fault) {
    const auto* const found =
        std::find_if(std::begin(kClasses), std::end(kClasses),
                     [&](const FaultClass& c) { return c.id == fault; });
    Diagnosis diagnosis;
    diagnosis.fault = fault;
    diagnosis.title = found->title;
    diagnosis.cause = found->cause;
    diagnosis.page = fault_page(fault);
    return diagnosis;
}

}  // namespace lockstep
