"""Notifications: a rules file, cases for it, and a program that receives them."""
