#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/module.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::lessons {

/// Puts together what ranks kept of parameters that they share out, so that a record
/// holds whole ones, by the names and in the layout that one device would have.
///
/// Which rank holds which part is found out by making the model once more, on virtual
/// devices that compute shapes only: so it is known in every process, whatever the
/// backend.
class WholeParameters {
  public:
    /// Makes a rank's model and shows it; the model may go when the call returns.
    using Show = std::function<void(Module&)>;
    using Make = std::function<void(Rank&, const Show&)>;

    WholeParameters(int ranks, const Make& make);

    /// Returns for every parameter NAME what the ranks kept under prefix + NAME. Throws
    /// std::logic_error if ranks that hold the same rows kept other bits.
    std::map<std::string, HostTensor> put_together(const RunReport& report,
                                                   const std::string& prefix = "") const;

  private:
    std::vector<std::map<std::string, Part>> parts_;  ///< by rank and parameter
};

}  // namespace lockstep::lessons
