package containerv1

import "strings"

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// ValidID reports whether an id of a container or a process can be the name of a directory: 1 to 128 letters,
// digits, '_', '.' or '-', the first a letter or a digit.
func ValidID(id string) bool {
	return id != "" && len(id) <= 128 && strings.Contains(letters, id[:1]) && strings.Trim(id, letters+"_.-") == ""
}
