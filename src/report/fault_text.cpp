#include "src/report/fault_text.hpp"

#include <algorithm>

namespace lockstep {

const std::vector<FaultClass>& fault_classes() {
    static const std::vector<FaultClass> classes{
        {"F01", "collectives in different order",
         "All ranks of a communicator must call the same collectives in the same "
         "order; find where the two lines part ways and make both ranks take the same "
         "path."},
        {"F02", "counts differ",
         "Every rank must pass the same number of elements; look at how each rank "
         "computes the size of its buffer (uneven shards need padding or weights)."},
        {"F03", "data types differ",
         "Every rank must pass the same type; make the tensors with one dtype on all "
         "ranks."},
        {"F04", "reductions differ",
         "Every rank must ask for the same reduction; one of the two lines says sum "
         "where the other says something else."},
        {"F05", "roots differ",
         "Every rank must name the same root; a root that depends on the rank is the "
         "usual mistake."},
        {"F06", "ranks disagree about a group",
         "All ranks of a communicator, members or not, must make the same groups in the "
         "same order, each with one name and one list of members: make both sides of the "
         "two lines compute these from values that are the same on every rank."},
        {"F07", "a rank is missing",
         "The rank that ended never made this call. Look for an early return, or a "
         "loop that runs fewer times on it."},
        {"F08", "split sizes do not fit",
         "What rank i sends to rank j must be what j expects from i: send_counts[j] "
         "on i equals recv_counts[i] on j. Exchange the counts first, or compute both "
         "from one table."},
        {"F09", "a message's two sizes differ",
         "A send and its recv must agree on count and type; check how each side "
         "computes its size."},
        {"F10", "a message without its other half",
         "Each send needs one recv on the other rank, and each recv one send; check "
         "the peers and how many messages each side expects."},
        {"F11", "sends and recvs wait for each other in a circle",
         "A send waits until its recv is there. Put concurrent sends and recvs into "
         "one group() or let some ranks receive first."},
        {"F12", "communicators used in opposite order",
         "Ranks that share two communicators must launch on them in the same order: "
         "swap the two calls on one of the ranks, or wait for the first before the second "
         "is launched."},
        {"F13", "ranks took different paths",
         "A condition or loop count differs between ranks, so that they are in "
         "different calls; make it depend on values that all ranks share."},
        {"F14", "a pipeline schedule that cannot run",
         "Each stage waits for another stage's message in a circle. Check the number "
         "of warm-up forwards before the first backward, and group the send of one "
         "with the recv of the next."},
        {"F15", "a group is misused",
         "A group is opened, filled and started once, and until then its communicator "
         "takes nothing else: call start() exactly once (a new group() for each time), "
         "before anything else on that communicator."},
        {"F16", "a buffer is read before it has arrived",
         "The communication still runs beside the device. Call wait() on its Work "
         "before the line that reads the buffer."},
        {"F17", "a buffer is overwritten while it is in use",
         "The communication still runs beside the device and uses the buffer. Call "
         "wait() on its Work before the line that writes, or write to another "
         "buffer."},
        {"F18", "a buffer is given up while it is in use",
         "Keep the tensor (in a variable or a list that lives long enough) until wait() "
         "has returned: its memory may be given to something else while the "
         "communication still uses it."},
        {"F19", "a communication that nobody waited for",
         "Keep the Work that the call returns, and call wait() on it, or on a later one "
         "of the same communicator, before the program ends; without that nothing says "
         "when the values are there."},
        {"F20", "buffers overlap",
         "Give one of the two operations, or input and output of the one, a buffer of its "
         "own; only what nobody writes may be shared, and in place only as the rule "
         "of the operation says."},
        {"F21", "averaged wrongly",
         "The mean over all samples needs each sample's gradient once, divided once "
         "by the number of all samples: divide by the size of the group that was "
         "summed over, once."},
        {"F22", "reduced twice",
         "The value has been reduced over this group already; take one of the two "
         "reductions away."},
        {"F23", "a reduction is missing",
         "Each rank holds only its part of this gradient: sum it over the group "
         "before the optimizer uses it."},
        {"F24", "replicas have drifted apart",
         "Replicas must start from the same values and take the same steps: use one "
         "seed, broadcast or load the same state on every rank, and step with the "
         "same gradient."},
        {"F25", "stale weights",
         "Forward and backward of a micro-batch must use one version of the weights; "
         "gather them again after each step, or stash the version that forward used."},
        {"F26", "shards in the wrong places",
         "Shards must be gathered in the order in which they were dealt out: use the "
         "same communicator, or the same order of ranks, for both."},
        {"F27", "gradients accumulated wrongly",
         "Zero the gradients before the first micro-batch of each step, give each "
         "micro-batch its share of the whole batch, add up all of them, and reduce once "
         "after the last."},
        {"F28", "a mean of unequal means",
         "Ranks with fewer rows count as much as those with more. Weight each part by "
         "its number of rows over the number of all rows, and sum."},
        {"F29", "random numbers are shared wrongly",
         "Dropout masks must differ where the data differ (data parallelism) and be "
         "the same where the activations are replicas (tensor parallelism): put the "
         "replica's number into the seed, and nothing else of the rank."},
        {"F30", "a device is out of memory",
         "See which lines hold most: free activations as soon as backward has used "
         "them, keep fewer micro-batches in flight, or shard what every device holds."},
        {"F31", "a communicator goes too early, or not everywhere",
         "Wait for all work of a communicator before it goes, let it go on all of its "
         "ranks before their programs end, and do not use it after that."},
    };
    return classes;
}

std::string fault_page(const std::string& fault) {
    return "lessons/faults/" + fault + ".md";
}

Diagnosis diagnosis_of(const std::string& fault) {
    const auto& classes = fault_classes();
    const auto found = std::find_if(classes.begin(), classes.end(),
                                    [&](const FaultClass& c) { return c.id == fault; });
    Diagnosis diagnosis;
    diagnosis.fault = fault;
    diagnosis.title = found->title;
    diagnosis.cause = found->cause;
    diagnosis.page = fault_page(fault);
    return diagnosis;
}

}  // namespace lockstep
