// Prints the checker's message about a program of the corpus, for pages of lessons.
//
//     show_fault                 name and class of each program
//     show_fault --classes       id and title of each class
//     show_fault NAME [FOLDER]   the diagnosis, in lines of 80 columns; if FOLDER is
//                                given, writes a stopped run's files into it

#include <cstdio>
#include <string>
#include <vector>

#include "src/report/write_diagnosis.hpp"
#include "src/run/fault_text.hpp"
#include "tests/faults/corpus.hpp"

namespace lockstep::test {

namespace {

int list_programs() {
    for (const FaultProgram& program : fault_corpus())
        std::printf("%s %s %s\n", program.name.c_str(), program.fault.c_str(),
                    program.check == sim::CheckLevel::full ? "full" : "cheap");
    return 0;
}

int list_classes() {
    for (const FaultClass& fault : fault_classes())
        std::printf("%s %s\n", fault.id, fault.title);
    return 0;
}

sim::ClusterOptions options_for(const FaultProgram& program) {
    sim::ClusterOptions options;
    options.ranks = program.ranks.front();
    options.spec = load_cluster("classroom");
    options.workers = 1;
    options.check = program.check;
    options.reference = program.reference;
    options.trace = true;
    if (program.memory_bytes > 0) options.spec.memory_bytes = program.memory_bytes;
    return options;
}

int show(const FaultProgram& program, const std::string& folder) {
    try {
        sim::make_cluster(options_for(program))->run(program.mistaken);
    } catch (const FaultError& fault) {
        std::fputs(fault.diagnosis().text(80).c_str(), stdout);
        if (!folder.empty()) write_diagnosis(folder, fault);
        return 0;
    }
    std::fprintf(stderr, "show_fault: %s was found correct\n", program.name.c_str());
    return 1;
}

int run(const std::vector<std::string>& words) {
    if (words.empty()) return list_programs();
    if (words[0] == "--classes") return list_classes();
    for (const FaultProgram& program : fault_corpus())
        if (program.name == words[0])
            return show(program, words.size() > 1 ? words[1] : "");
    std::fprintf(stderr, "show_fault: there is no program %s\n", words[0].c_str());
    return 2;
}

}  // namespace

}  // namespace lockstep::test

int main(int count, char** words) {
    return lockstep::test::run({words + 1, words + count});
}
