package errclass

import (
	"errors"
	"io"
	"testing"
)

func TestWith(t *testing.T) {
	t.Parallel()
	class := errors.New("conflict")
	err := With(class, io.ErrUnexpectedEOF)
	if !errors.Is(err, class) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v is not both", err)
	}
	if err.Error() != io.ErrUnexpectedEOF.Error() {
		t.Errorf("its message is %q", err)
	}
}
