#include "gpu/launcher/placement.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sys/types.h>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/secret.hpp"
#include "src/core/require.hpp"
#include "src/os/environment.hpp"

namespace lockstep::gpu {

namespace {

constexpr int kMostProcesses = 1 << 20;
constexpr size_t kLongestUnixName = 100;  // sockaddr_un has 108 bytes

// Ports below Linux's range for outgoing connections.
constexpr int kFirstPort = 20000;
constexpr int kPorts = 12768;

/// Returns the number if the whole text is a number.
template <typename Number>
std::optional<Number> whole_number(const std::string& text) {
    Number number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

/// Returns a positive whole number; 0 for any other text.
int parse_count(const std::string& text) {
    return std::max(whole_number<int>(text).value_or(0), 0);
}

}  // namespace

// Addresses.

std::string Address::text() const {
    if (!unix_name.empty()) return "unix:" + unix_name;
    const bool ipv6 = host.find(':') != std::string::npos;
    return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Address parse_address(const std::string& text, const std::string& variable) {
    const auto expect = [&](bool condition, const char* expected) {
        require(condition, "{}: \"{}\" is no address to meet at; expected {}", variable,
                text, expected);
    };
    Address address;
    if (text.starts_with("unix:")) {
        address.unix_name = text.substr(5);
        expect(!address.unix_name.empty() && address.unix_name.size() <= kLongestUnixName,
               "unix:NAME with a name of 1 to 100 characters");
        return address;
    }
    const size_t colon = text.rfind(':');
    expect(colon != std::string::npos && colon > 0, "host:port, as in node01:29500");
    address.host = text.substr(0, colon);
    if (address.host.front() == '[' && address.host.back() == ']') {
        address.host = address.host.substr(1, address.host.size() - 2);
        expect(!address.host.empty(), "[::1]:29500");
    } else {
        expect(address.host.find(':') == std::string::npos,
               "an IPv6 address in brackets, as in [::1]:29500");
    }
    address.port = parse_count(text.substr(colon + 1));
    expect(address.port > 0 && address.port <= 65535, "a port from 1 to 65535");
    return address;
}

Address meeting_place(const Placement& placement) {
    Address address = parse_address(placement.rendezvous.address, "the rendezvous");
    address.spread = placement.local_size < placement.size;
    return address;
}

unsigned long long hash_text(const std::string& text) {
    // FNV-1a, with a final mix so that short texts use all bits.
    unsigned long long hash = 0xcbf29ce484222325;
    for (const unsigned char letter : text)
        hash = (hash ^ letter) * 0x100000001b3;
    hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
    return hash ^ (hash >> 33);
}

// Slurm's lists of machines.

std::string first_host(const std::string& list, const std::string& variable) {
    // Outside brackets a comma ends the first host. Inside brackets only the first entry
    // counts, and only the beginning of a range.
    std::string host;
    bool in_bracket = false;
    bool entry_done = false;
    for (const char letter : list) {
        if (!in_bracket && letter == ',') break;
        if (letter == '[' && !in_bracket)
            in_bracket = true, entry_done = false;
        else if (letter == ']' && in_bracket)
            in_bracket = false;
        else if (in_bracket && (letter == ',' || letter == '-'))
            entry_done = true;
        else if (!in_bracket || !entry_done)
            host += letter;
    }
    const bool odd = host.find_first_of("[] ") != std::string::npos;
    require(!host.empty() && !in_bracket && !odd,
            "{} is \"{}\"; expected names of machines, as in gpu[01-04,07],login1",
            variable, list);
    return host;
}

int tasks_of_node(const std::string& list, int node, const std::string& variable) {
    const auto expect = [&](bool condition, const std::string& expected) {
        require(condition, "{} is \"{}\"; expected {}", variable, list, expected);
    };
    int nodes = 0;
    for (size_t start = 0; start <= list.size();) {
        const size_t comma = std::min(list.find(',', start), list.size());
        const std::string part = list.substr(start, comma - start);
        start = comma + 1;
        const size_t bracket = part.find("(x");
        const bool repeated = bracket != std::string::npos && part.back() == ')';
        const int tasks = parse_count(part.substr(0, bracket));
        const int times =
            repeated ? parse_count(part.substr(bracket + 2, part.size() - bracket - 3))
                     : int(bracket == std::string::npos);
        expect(tasks > 0 && times > 0, "counts of tasks, as in 4(x2),3");
        if (node - nodes < times) return tasks;
        nodes += times;
    }
    expect(false,
           fmt::format("more than {} machines, since SLURM_NODEID is {}", node, node));
    return 0;
}

namespace {

// Launchers tell a process its place through environment variables.

/// The names of one launcher's variables.
struct VariableNames {
    const char* rank;
    const char* size;
    const char* local_rank;
    const char* local_size;
};

/// The variables that one launcher sets. Every error names the variable, its value and
/// the expected values.
class Variables {
  public:
    /// `launcher` has set the variables; its variable `sign` was recognised.
    Variables(const Environment& environment, std::string launcher, std::string sign)
        : environment_(environment),
          launcher_(std::move(launcher)),
          sign_(std::move(sign)) {}

    bool has(const std::string& name) const { return environment_(name).has_value(); }
    std::string text_or_empty(const std::string& name) const {
        return environment_(name).value_or("");
    }
    /// Throws UsageError if it is not set.
    std::string text(const std::string& name) const;
    /// Throws UsageError if it is not set or not a number from `least` to `most`.
    int number(const std::string& name, int least, int most) const;
    /// Returns a placement without a rendezvous, from four numbers that are checked
    /// against each other.
    Placement placement(const VariableNames& names) const;
    /// Returns the address from LOCKSTEP_RENDEZVOUS, or else an address next to that of
    /// NCCL_COMM_ID, under every launcher. Otherwise, if all processes are on this
    /// machine, returns a socket named after the user and `job`. (`job` is the same text
    /// in all processes of a run, and differs between runs.) Otherwise returns `address`;
    /// throws UsageError if that is empty.
    Rendezvous rendezvous(const Placement& placement, const std::string& job,
                          const std::string& address) const;

  private:
    const Environment& environment_;
    std::string launcher_;
    std::string sign_;
};

std::string Variables::text(const std::string& name) const {
    const std::optional<std::string> value = environment_(name);
    require(value.has_value() && !value->empty(),
            "{} is set, as {} sets it, but {} is not: set both or neither", sign_,
            launcher_, name);
    return *value;
}

int Variables::number(const std::string& name, int least, int most) const {
    const std::string value = text(name);
    const std::optional<int> number = whole_number<int>(value);
    require(number && *number >= least && *number <= most,
            "{} is \"{}\"; expected a whole number from {} to {}, as {} sets it", name,
            value, least, most, launcher_);
    return *number;
}

Placement Variables::placement(const VariableNames& names) const {
    Placement placement;
    placement.launcher = launcher_;
    placement.size = number(names.size, 1, kMostProcesses);
    placement.rank = number(names.rank, 0, placement.size - 1);
    placement.local_size = number(names.local_size, 1, placement.size);
    placement.local_rank = number(names.local_rank, 0, placement.local_size - 1);
    return placement;
}

/// Returns a port next to `port`, because the owner of `port` may listen at it itself.
int port_beside(int port) {
    return port < 65535 ? port + 1 : port - 1;
}

Rendezvous Variables::rendezvous(const Placement& placement, const std::string& job,
                                 const std::string& address) const {
    if (has("LOCKSTEP_RENDEZVOUS"))
        return {parse_address(text("LOCKSTEP_RENDEZVOUS"), "LOCKSTEP_RENDEZVOUS").text()};
    if (placement.size == 1) return {};
    if (has("NCCL_COMM_ID")) {
        Address nccl = parse_address(text("NCCL_COMM_ID"), "NCCL_COMM_ID");
        nccl.port = port_beside(nccl.port);
        return {nccl.text()};
    }
    if (placement.local_size == placement.size && !job.empty())
        return {fmt::format("unix:lockstep-{}-{:016x}", getuid(), hash_text(job))};
    require(!address.empty(),
            "{} started {} processes, {} of them on this machine, and gives no address "
            "where they could meet: set LOCKSTEP_RENDEZVOUS=host:port for all of them, "
            "with the host of rank 0 and a free port",
            placement.launcher, placement.size, placement.local_size);
    return {address};
}

/// Returns the launcher's variables if they have this process's rank or the number of
/// processes.
std::optional<Variables> variables_of(const Environment& environment,
                                      const char* launcher, const VariableNames& names) {
    for (const char* const sign : {names.size, names.rank})
        if (environment(sign)) return Variables(environment, launcher, sign);
    return std::nullopt;
}

// Each function returns one launcher's placement; none if that launcher did not start us.
// Throws UsageError if its variables make no sense.

std::optional<Placement> lockstep_placement(const Environment& environment) {
    constexpr VariableNames kNames = {"LOCKSTEP_RANK", "LOCKSTEP_SIZE",
                                      "LOCKSTEP_LOCAL_RANK", "LOCKSTEP_LOCAL_SIZE"};
    const auto variables = variables_of(environment, "lockstep", kNames);
    if (!variables) return std::nullopt;
    Placement placement = variables->placement(kNames);
    placement.supervised = variables->has("LOCKSTEP_SUPERVISED");
    placement.rendezvous = variables->rendezvous(placement, "", "");
    return placement;
}

std::optional<Placement> torchrun_placement(const Environment& environment) {
    constexpr VariableNames kNames = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE"};
    const auto variables = variables_of(environment, "torchrun", kNames);
    if (!variables) return std::nullopt;
    Placement placement = variables->placement(kNames);

    // torchrun's agent may listen at MASTER_PORT itself, so use a port next to it.
    Address place;
    place.host = variables->text("MASTER_ADDR");
    place.port = port_beside(variables->number("MASTER_PORT", 1, 65535));
    const std::string address = place.text();
    const std::string job = fmt::format(
        "torchrun {} {} {}", address, variables->text_or_empty("TORCHELASTIC_RUN_ID"),
        variables->text_or_empty("TORCHELASTIC_RESTART_COUNT"));
    placement.rendezvous = variables->rendezvous(placement, job, address);
    return placement;
}

std::optional<Placement> open_mpi_placement(const Environment& environment) {
    constexpr VariableNames kNames = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE"};
    const auto variables = variables_of(environment, "mpirun", kNames);
    if (!variables) return std::nullopt;
    Placement placement = variables->placement(kNames);
    std::string job;
    for (const char* name :
         {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"})
        job += variables->text_or_empty(name);
    placement.rendezvous = variables->rendezvous(placement, job, "");
    return placement;
}

std::string file_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

pid_t parent_of(pid_t process) {
    // The text is "pid (name) state parent …"; the name may contain any character.
    const std::string stat = file_text(fmt::format("/proc/{}/stat", process));
    const size_t name_end = stat.rfind(") ");
    return name_end == std::string::npos ? 0 : std::atoi(stat.c_str() + name_end + 4);
}

/// Returns a name for the job from the id of the process that set PMI_RANK. Wrappers that
/// only inherited PMI_RANK are skipped. Hydra puts no other name for its job into the
/// environment.
std::string hydra_job() {
    pid_t process = getppid();
    while (process > 1 &&
           file_text(fmt::format("/proc/{}/environ", process)).find("PMI_RANK=") !=
               std::string::npos)
        process = parent_of(process);
    return fmt::format("hydra {}", process);
}

/// Returns true if srun started this process: it runs in a step of a Slurm job and is not
/// the job's own shell.
bool in_slurm_step(const Environment& environment) {
    // The shells of sbatch and salloc have SLURM_PROCID=0 and the job's SLURM_NTASKS. But
    // they have no step, or their step number is above that of any step with tasks.
    constexpr unsigned long long kLastStep = 0xfffffff0;
    const auto step =
        whole_number<unsigned long long>(environment("SLURM_STEP_ID").value_or(""));
    return step && *step <= kLastStep;
}

std::optional<Placement> pmi_placement(const Environment& environment) {
    constexpr VariableNames kNames = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                      "MPI_LOCALNRANKS"};
    const auto variables = variables_of(environment, "mpirun", kNames);
    // srun also sets the first two variables (--mpi=pmi2), but not the local variables.
    if (!variables || (!variables->has("MPI_LOCALRANKID") && in_slurm_step(environment)))
        return std::nullopt;
    Placement placement = variables->placement(kNames);
    const auto job = environment("PMI_JOBID");
    placement.rendezvous =
        variables->rendezvous(placement, job ? "pmi " + *job : hydra_job(), "");
    return placement;
}

std::optional<Placement> slurm_placement(const Environment& environment) {
    if (!in_slurm_step(environment) || !environment("SLURM_PROCID")) return std::nullopt;
    const Variables variables(environment, "srun", "SLURM_PROCID");
    Placement placement;
    placement.launcher = "srun";
    const char* size =
        variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    placement.size = variables.number(size, 1, kMostProcesses);
    // `srun --pty bash` starts a shell, not a rank; a program in it may start copies.
    if (placement.size == 1) return std::nullopt;
    placement.rank = variables.number("SLURM_PROCID", 0, placement.size - 1);
    placement.local_size = tasks_of_node(
        variables.text("SLURM_STEP_TASKS_PER_NODE"),
        variables.number("SLURM_NODEID", 0, kMostProcesses), "SLURM_STEP_TASKS_PER_NODE");
    placement.local_rank = variables.number("SLURM_LOCALID", 0, placement.local_size - 1);

    const std::string step =
        variables.text("SLURM_JOB_ID") + "." + variables.text("SLURM_STEP_ID");
    // The port is the same within a step, and rarely the same in two steps.
    const int port = kFirstPort + static_cast<int>(hash_text(step) % kPorts);
    const std::string host =
        first_host(variables.text("SLURM_STEP_NODELIST"), "SLURM_STEP_NODELIST");
    placement.rendezvous =
        variables.rendezvous(placement, "srun " + step, Address{"", host, port}.text());
    return placement;
}

}  // namespace

Environment process_environment() {
    return &os::variable;
}

std::optional<Placement> find_placement(const Environment& environment) {
    const Environment set = [&](const std::string& name) {
        std::optional<std::string> value = environment(name);
        if (value && value->empty()) value.reset();
        return value;
    };
    // A launcher's processes inherit the variables of an outer launcher. Our copies may
    // run under any launcher, and torchrun and mpirun may run under srun. So look for the
    // innermost launcher first.
    for (const auto find : {lockstep_placement, torchrun_placement, open_mpi_placement,
                            pmi_placement, slurm_placement})
        if (auto placement = find(set)) {
            if (placement->size > 1) placement->rendezvous.secret = find_secret(set);
            return placement;
        }
    return std::nullopt;
}

}  // namespace lockstep::gpu
