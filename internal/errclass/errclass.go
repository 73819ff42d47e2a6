// Package errclass adds a class to an error: errors.Is finds it, and the message does not repeat it.
package errclass

import (
	"errors"
	"fmt"
)

// With returns err with a class that errors.Is finds. Its message is err's.
func With(class, err error) error { return fmt.Errorf("%w%w", silent{class}, err) }

// silent is a class that adds nothing to the message.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// Names are classes with their names for messages over a socket, the most important first.
type Names []struct {
	Name  string
	Class error
}

// Of returns the name of the first class of err, and "" if it has none.
func (n Names) Of(err error) string {
	for _, one := range n {
		if errors.Is(err, one.Class) {
			return one.Name
		}
	}
	return ""
}

// Named returns the class with that name, and nil for an unknown one.
func (n Names) Named(name string) error {
	for _, one := range n {
		if one.Name == name {
			return one.Class
		}
	}
	return nil
}
