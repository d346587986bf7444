#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::lessons {

/// The parts with which students' programs are built; lessons/grader/make_kit.py makes
/// them.
class Kit {
  public:
    /// Returns the kit next to this program. Throws MissingError if there is none.
    static Kit find();
    explicit Kit(std::filesystem::path folder) : folder_(std::move(folder)) {}

    /// Return the folder of the files for students, and the folder of the grader's data.
    std::filesystem::path handout(const std::string& slug) const;
    std::filesystem::path grading(const std::string& slug) const;
    /// Returns the sources of Lockstep from which the kit was built. Throws MissingError
    /// if they no longer exist or are not on this machine.
    std::filesystem::path sources() const;
    /// The headers that students may use, below src and sim.
    std::filesystem::path include() const { return folder_ / "include"; }
    /// The program that unpacks a .zip: unpack.py.
    std::filesystem::path unpacker() const { return folder_ / "unpack.py"; }
    /// For --pkg-config-path.
    std::filesystem::path pkgconfig() const { return folder_ / "pkgconfig"; }

    /// Returns the folders that are needed to build an assignment's programs.
    std::vector<std::filesystem::path> parts(const std::string& slug) const;
    /// Copies these folders, and returns a kit that has only them.
    Kit copied_to(const std::filesystem::path& folder, const std::string& slug) const;

    /// Flags for the compiler, and for linking a rank's program with the assignment's
    /// tasks.
    std::vector<std::string> compile_flags(const std::string& slug) const;
    std::vector<std::string> link_flags(const std::string& slug) const;

  private:
    /// The folder with additional headers for this assignment's students; it may not
    /// exist.
    std::filesystem::path more_include(const std::string& slug) const;
    /// Libraries of a rank's program, in link order.
    std::vector<std::string> rank_libraries(const std::string& slug) const;

    std::filesystem::path folder_;
};

}  // namespace lockstep::lessons
