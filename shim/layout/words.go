package layout

import "strconv"

// Names used beyond containerd's API, shared by the doors and the shim.
const (
	// ConfigType is the type URL of CreateSandbox's options: a sandbox.Config in JSON. Scratch is the name under which
	// its disk is sent, if it has one.
	ConfigType = "io.bulkhead.sandbox.Config+json"
	Scratch    = "scratch"
)

// Card returns the name under which the tap of a further interface is sent, counted from 0.
func Card(number int) string { return "card-" + strconv.Itoa(number) }
