// Package fields defines the treatment of each field of the OCI runtime specification, in tables. Package convert acts
// on the tables, and docs/oci-config.md is generated from them.
package fields

//go:generate go run ./gen ../../docs/oci-config.md

// Treatment is Bulkhead's handling of a field.
type Treatment string

// The treatments.
const (
	// Guest: the field goes to the guest's runtime, converted if necessary.
	Guest Treatment = "guest"
	// Host: the door or the engine acts on the field, for the container or for its VM. The guest does not get it.
	Host Treatment = "host"
	// Ignored: the field has no effect, which is logged. In strict mode it is refused.
	Ignored Treatment = "ignored"
	// Refused: a specification with the field is refused, with an error that names it.
	Refused Treatment = "refused"
)

// Entry is the description of one field.
type Entry struct {
	Treatment Treatment
	// Note is the reason, or a detail.
	Note string
}

func guest(note ...string) Entry { return entry(Guest, note) }
func host(note ...string) Entry  { return entry(Host, note) }
func ignored(note string) Entry  { return Entry{Ignored, note} }
func refused(note string) Entry  { return Entry{Refused, note} }

func entry(t Treatment, note []string) Entry {
	e := Entry{Treatment: t}
	if len(note) > 0 {
		e.Note = note[0]
	}
	return e
}
