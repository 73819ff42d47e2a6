// Package shortid shortens ids of pods, containers and images for people.
package shortid

// Of returns the first 12 characters of id, or all of a shorter one.
func Of(id string) string { return id[:min(12, len(id))] }
