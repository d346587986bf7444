#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::lessons {

/// Students' programs are built with this; lessons/grader/make_kit.py puts it together.
class Kit {
  public:
    /// The one that lies beside this program. Throws MissingError if there is none.
    static Kit find();
    explicit Kit(std::filesystem::path folder) : folder_(std::move(folder)) {}

    /// The folders of what a student is given, and of what the grader adds to it.
    std::filesystem::path handout(const std::string& slug) const;
    std::filesystem::path grading(const std::string& slug) const;
    /// Lockstep's own sources, from which the kit was built. Throws MissingError if they
    /// have gone, or are not here.
    std::filesystem::path sources() const;
    /// The headers of what students may use, below src and sim.
    std::filesystem::path include() const { return folder_ / "include"; }
    /// The program that takes files out of a .zip: unpack.py.
    std::filesystem::path unpacker() const { return folder_ / "unpack.py"; }
    /// For --pkg-config-path.
    std::filesystem::path pkgconfig() const { return folder_ / "pkgconfig"; }

    /// Returns the folders of what an assignment's programs are built with.
    std::vector<std::filesystem::path> parts(const std::string& slug) const;
    /// Copies these, and returns a kit that has nothing else.
    Kit copied_to(const std::filesystem::path& folder, const std::string& slug) const;

    /// For the compiler, and for linking a rank's program, with the assignment's tasks.
    std::vector<std::string> compile_flags(const std::string& slug) const;
    std::vector<std::string> link_flags(const std::string& slug) const;

  private:
    /// Headers that the assignment's students have beside the others' own; a folder that
    /// may not be there.
    std::filesystem::path more_include(const std::string& slug) const;
    /// Libraries of a rank's program, in the order in which they are linked.
    std::vector<std::string> rank_libraries(const std::string& slug) const;

    std::filesystem::path folder_;
};

}  // namespace lockstep::lessons
