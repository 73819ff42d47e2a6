// Package channel carries many byte streams over the one virtio-serial port of a VM, between a host process and the
// guest's agent.
//
// The port does not reliably tell the guest that the host process behind it was replaced. It may truncate the old
// process's data in both directions. So all data travels in frames that carry their session's epoch, a random number
// that the host chooses. The host sends a hello with a new epoch and repeats it until it is answered. The guest accepts
// a hello at any point, ends the previous session, and drops frames of other epochs. A guest that was saved while its
// host did not read receives nothing before its first connection is closed. So a host without an answer connects again.
// The frames carry yamux.
//
// The guest's data is hostile. Garbage, a stream opened by the guest, a ping, or more data than allowed ends the
// session with an error, and nothing else.
package channel
