// Package inside runs in a small process in a client's network namespace. It serves an engine that cannot enter the
// namespace, and a door that ends after each command. It creates sockets in the namespace, and runs the door's program
// when the interfaces change.
//
// The process holds both ends of a pair (Pair). It calls Serve with one of them. Others take the second one from it by
// its number (procid.ID.File), and use it as a Client. The package is small, because many such processes run at once.
package inside
