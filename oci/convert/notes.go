package convert

import (
	"fmt"
	"strconv"

	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/fields"
)

// Note names a setting that has no effect.
type Note struct {
	Field string // its path in config.json, such as "linux.intelRdt"
	Why   string
}

// String returns the note as a line of a log.
func (n Note) String() string { return show(n.Field) + " is ignored: " + n.Why }

// notes collects the ignored settings of one conversion, and its first error.
type notes struct {
	strict bool
	list   []Note
	err    error
}

// ignore records a setting without an effect. In strict mode it is an error.
func (n *notes) ignore(field, why string) {
	if n.strict {
		n.fail(fmt.Errorf("%w: %s has no effect: %s", oci.ErrNotSupported, show(field), why))
		return
	}
	n.list = append(n.list, Note{field, why})
}

// fail keeps the first error.
func (n *notes) fail(err error) {
	if n.err == nil {
		n.err = err
	}
}

// report handles a field that the tables do not send to the guest.
func (n *notes) report(path string, e fields.Entry) {
	if e.Treatment == fields.Ignored {
		n.ignore(path, e.Note)
		return
	}
	n.fail(unsupported(path, "%s", e.Note))
}

// invalid returns an error for a malformed field.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", oci.ErrInvalid, show(field), fmt.Errorf(format, args...))
}

// unsupported returns an error for a field that has no meaning in a VM, or not yet.
func unsupported(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", oci.ErrNotSupported, show(field), fmt.Errorf(format, args...))
}

// show bounds a field's path and keeps it on one line. Names of annotations and of unknown fields are the client's.
func show(field string) string {
	field = fmt.Sprintf("%.200s", field)
	if quoted := strconv.Quote(field); quoted != `"`+field+`"` {
		return quoted
	}
	return field
}
