// Package channel carries many byte streams over the one virtio-serial port of
// a virtual machine, between a host process and the guest's agent.
//
// The port does not tell the guest reliably that the host process behind it
// has been replaced, and it may cut what the old one sent or was to receive in
// the middle. So everything travels in frames that carry their session's
// epoch, a random number that the host chooses: the host sends a hello with a
// new epoch, repeats it until it is answered, and the guest accepts a hello at
// any point, drops the session before, and forgets frames of other epochs. A
// guest that was saved while its host did not read hears nobody before its
// first connection is closed, so a host that gets no answer connects again.
// Inside the frames runs yamux.
//
// What the guest sends is hostile: garbage, a stream that the guest opens, a
// ping, or more data than was allowed ends the session with an error, and
// never more than the session.
package channel
