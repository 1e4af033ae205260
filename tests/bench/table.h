// Tables for people, in Markdown on standard output; rows come as they are measured. Both return the exit status.
#pragma once

namespace rehearse::bench {

// The budgets of speed: what is measured here, what it may take, and the fastest other simulator on the same work.
int print_table();
// Costs as their sizes double, and the exponent: cost ~ size^exponent, by least squares over the logarithms.
int print_growth();

}  // namespace rehearse::bench
