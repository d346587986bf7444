#include <map>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/placement.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::gpu;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Placement> find(const Variables& variables) {
    return find_placement([&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
}

Variables added(Variables variables, const Variables& more) {
    for (const auto& [name, value] : more)
        variables[name] = value;
    return variables;
}

Variables removed(Variables variables, const std::string& name) {
    variables.erase(name);
    return variables;
}

/// Returns "launcher rank/size local_rank/local_size".
std::string text(const std::optional<Placement>& place) {
    if (!place) return "none";
    return fmt::format("{} {}/{} {}/{}", place->launcher, place->rank, place->size,
                       place->local_rank, place->local_size);
}

const Variables kOurs = {{"LOCKSTEP_RANK", "2"},
                         {"LOCKSTEP_SIZE", "4"},
                         {"LOCKSTEP_LOCAL_RANK", "0"},
                         {"LOCKSTEP_LOCAL_SIZE", "2"},
                         {"LOCKSTEP_RENDEZVOUS", "unix:somewhere"}};
const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "1928396801"}};
const Variables kHydra = {{"PMI_RANK", "1"},
                          {"PMI_SIZE", "3"},
                          {"MPI_LOCALRANKID", "1"},
                          {"MPI_LOCALNRANKS", "3"}};
const Variables kSlurm = {{"SLURM_PROCID", "9"},
                          {"SLURM_NTASKS", "11"},
                          {"SLURM_STEP_NUM_TASKS", "11"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                          {"SLURM_STEP_NODELIST", "gpu[01-02,07]"},
                          {"SLURM_JOB_ID", "4711"},
                          {"SLURM_STEP_ID", "0"}};
const Variables kSlurmOneNode = added(kSlurm, {{"SLURM_PROCID", "1"},
                                               {"SLURM_STEP_NUM_TASKS", "4"},
                                               {"SLURM_NODEID", "0"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "4"},
                                               {"SLURM_STEP_NODELIST", "gpu01"}});
/// The variables in a shell of sbatch.
const Variables kBatchShell = {{"SLURM_PROCID", "0"},
                               {"SLURM_NTASKS", "4"},
                               {"SLURM_LOCALID", "0"},
                               {"SLURM_NODEID", "0"},
                               {"SLURM_JOB_ID", "4711"}};

}  // namespace

TEST_CASE("A process without a launcher has no place") {
    CHECK(text(find({})) == "none");
    CHECK(text(find({{"LOCKSTEP_RENDEZVOUS", "node1:29500"}})) == "none");
}

TEST_CASE("Each launcher's variables are read") {
    CHECK(text(find(kOurs)) == "lockstep 2/4 0/2");
    CHECK(text(find(kTorchrun)) == "torchrun 5/8 1/4");
    CHECK(text(find(kOpenMpi)) == "mpirun 1/2 1/2");
    CHECK(text(find(kHydra)) == "mpirun 1/3 1/3");
    CHECK(text(find(kSlurm)) == "srun 9/11 1/3");
    CHECK(text(find(removed(kSlurm, "SLURM_STEP_NUM_TASKS"))) == "srun 9/11 1/3");
    CHECK(text(find(kSlurmOneNode)) == "srun 1/4 1/4");
}

TEST_CASE("In an interactive shell of Slurm a process has no place") {
    CHECK(text(find(kBatchShell)) == "none");
    for (const char* step : {"4294967291", "4294967290", "batch", ""})
        CHECK(text(find(added(kBatchShell, {{"SLURM_STEP_ID", step}}))) == "none");
    CHECK(text(find(added(kSlurmOneNode, {{"SLURM_STEP_NUM_TASKS", "1"}}))) == "none");
}

TEST_CASE("The innermost launcher counts") {
    Variables all = kSlurm;
    const Variables pmi_of_srun = {{"PMI_RANK", "9"}, {"PMI_SIZE", "11"}};
    CHECK(text(find(added(all, pmi_of_srun))) == "srun 9/11 1/3");
    CHECK(text(find(all = added(all, kHydra))) == "mpirun 1/3 1/3");
    CHECK(text(find(all = added(all, kOpenMpi))) == "mpirun 1/2 1/2");
    CHECK(text(find(all = added(all, kTorchrun))) == "torchrun 5/8 1/4");
    CHECK(text(find(all = added(all, kOurs))) == "lockstep 2/4 0/2");
}

TEST_CASE("On one machine processes meet at a socket named after their job") {
    const auto address = [](const Variables& variables) {
        return find(variables)->rendezvous.address;
    };
    const std::string prefix = fmt::format("unix:lockstep-{}-", getuid());
    const Variables torchrun = added(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}});
    for (const Variables& job : {kOpenMpi, kHydra, kSlurmOneNode, torchrun}) {
        CHECK_THAT(address(job), StartsWith(prefix));
        CHECK(address(job) == address(job));
    }
    CHECK(address(kOpenMpi) != address(added(kOpenMpi, {{"PMIX_NAMESPACE", "2"}})));
    CHECK(address(kHydra) != address(added(kHydra, {{"PMI_JOBID", "2"}})));
    CHECK(address(kSlurmOneNode) !=
          address(added(kSlurmOneNode, {{"SLURM_STEP_ID", "1"}})));
    CHECK(address(torchrun) != address(added(torchrun, {{"MASTER_PORT", "2"}})));
    CHECK(address(torchrun) !=
          address(added(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})));
}

TEST_CASE("Processes on several machines meet where rank 0 is") {
    const auto address = [](const Variables& variables) {
        return find(variables)->rendezvous.address;
    };
    CHECK(address(kTorchrun) == "node1:29501");
    CHECK(address(added(kTorchrun, {{"MASTER_ADDR", "fd00::1"}})) == "[fd00::1]:29501");
    CHECK(address(added(kTorchrun, {{"MASTER_PORT", "65535"}})) == "node1:65534");
    const Address slurm = parse_address(address(kSlurm), "");
    CHECK(slurm.host == "gpu01");
    CHECK(slurm.port >= 20000);
    CHECK(slurm.port < 32768);
    CHECK(address(kSlurm) != address(added(kSlurm, {{"SLURM_JOB_ID", "4712"}})));
}

TEST_CASE("The user's address is used under every launcher") {
    const Variables ours = {{"LOCKSTEP_RENDEZVOUS", "[::1]:4000"}};
    const Variables nccl = {{"NCCL_COMM_ID", "10.0.0.1:4000"}};
    for (const Variables& variables : {kTorchrun, kOpenMpi, kHydra, kSlurm}) {
        CHECK(find(added(variables, nccl))->rendezvous.address == "10.0.0.1:4001");
        CHECK(find(added(added(variables, nccl), ours))->rendezvous.address ==
              "[::1]:4000");
    }
}

TEST_CASE("mpirun over several machines needs an address") {
    CHECK_THROWS_WITH(
        find(added(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}})),
        "mpirun started 4 processes, 2 of them on this machine, and gives no "
        "address where they could meet: set LOCKSTEP_RENDEZVOUS=host:port for "
        "all of them, with the host of rank 0 and a free port");
    CHECK_THROWS_AS(find(removed(kOurs, "LOCKSTEP_RENDEZVOUS")), UsageError);
    const Variables alone = {{"OMPI_COMM_WORLD_RANK", "0"},
                             {"OMPI_COMM_WORLD_SIZE", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
    CHECK(find(alone)->rendezvous.address.empty());
}

TEST_CASE("Each missing variable is named") {
    const std::map<std::string, Variables> launchers = {
        {"LOCKSTEP_SIZE", kOurs},
        {"WORLD_SIZE", kTorchrun},
        {"OMPI_COMM_WORLD_SIZE", kOpenMpi},
        {"PMI_SIZE", kHydra},
        {"SLURM_PROCID", kSlurm}};
    for (const auto& [sign, variables] : launchers)
        for (const auto& [name, value] : variables) {
            const bool needed = name != sign && name != "LOCKSTEP_RENDEZVOUS" &&
                                name != "PMIX_NAMESPACE" && name != "SLURM_NTASKS" &&
                                name != "SLURM_STEP_NUM_TASKS" && name != "SLURM_STEP_ID";
            if (!needed) continue;
            INFO(name);
            CHECK_THROWS_WITH(find(removed(variables, name)),
                              StartsWith(sign + " is set, as ") &&
                                  ContainsSubstring(" sets it, but " + name + " is not"));
            CHECK_THROWS_AS(find(added(variables, {{name, ""}})), UsageError);
        }
    CHECK_THROWS_WITH(
        find(removed(kTorchrun, "WORLD_SIZE")),
        "RANK is set, as torchrun sets it, but WORLD_SIZE is not: set both or neither");
    CHECK_THROWS_AS(find(removed(kOurs, "LOCKSTEP_SIZE")), UsageError);
    CHECK_THROWS_AS(find(removed(kOpenMpi, "OMPI_COMM_WORLD_SIZE")), UsageError);
    CHECK_THROWS_AS(find(removed(kHydra, "PMI_SIZE")), UsageError);
}

TEST_CASE("An empty variable is not set") {
    CHECK(text(find({{"WORLD_SIZE", ""}, {"RANK", ""}, {"LOCKSTEP_RANK", ""}})) ==
          "none");
    CHECK(text(find(added(kTorchrun, {{"LOCKSTEP_SIZE", ""}, {"NCCL_COMM_ID", ""}}))) ==
          "torchrun 5/8 1/4");
}

TEST_CASE("Our own supervisor identifies itself") {
    CHECK_FALSE(find(kOurs)->supervised);
    CHECK(find(added(kOurs, {{"LOCKSTEP_SUPERVISED", "1"}}))->supervised);
    CHECK_FALSE(find(added(kTorchrun, {{"LOCKSTEP_SUPERVISED", "1"}}))->supervised);
}

TEST_CASE("A wrong variable is named with its value and what was expected") {
    CHECK_THROWS_WITH(find(added(kOurs, {{"LOCKSTEP_RANK", "4"}})),
                      "LOCKSTEP_RANK is \"4\"; expected a whole number from 0 to 3, as "
                      "lockstep sets it");
    const std::pair<Variables, Variables> wrong[] = {
        {kOurs, {{"LOCKSTEP_SIZE", "0"}}},
        {kOurs, {{"LOCKSTEP_RANK", "-1"}}},
        {kOurs, {{"LOCKSTEP_LOCAL_RANK", "2"}}},
        {kOurs, {{"LOCKSTEP_LOCAL_SIZE", "5"}}},
        {kOurs, {{"LOCKSTEP_RENDEZVOUS", "somewhere"}}},
        {kTorchrun, {{"RANK", "one"}}},
        {kTorchrun, {{"RANK", "1 "}}},
        {kTorchrun, {{"MASTER_PORT", "0"}}},
        {kTorchrun, {{"NCCL_COMM_ID", "10.0.0.1"}}},
        {kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "99999999999"}}},
        {kHydra, {{"PMI_RANK", "3"}}},
        {kSlurm, {{"SLURM_PROCID", "11"}}},
        {kSlurm, {{"SLURM_LOCALID", "3"}}},
        {kSlurm, {{"SLURM_NODEID", "3"}}},
        {kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "4(x2"}}},
        {kSlurm, {{"SLURM_STEP_NODELIST", "gpu[01"}}},
    };
    for (const auto& [variables, change] : wrong) {
        const auto& [name, value] = *change.begin();
        CHECK_THROWS_AS(find(added(variables, change)), UsageError);
        const std::string named =
            name == "SLURM_NODEID" ? "SLURM_STEP_TASKS_PER_NODE" : name;
        CHECK_THROWS_WITH(find(added(variables, change)),
                          StartsWith(named) && ContainsSubstring("expected"));
    }
}
