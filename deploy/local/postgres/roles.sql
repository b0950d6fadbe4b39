-- Roles of the local stack's database, run in it by the superuser; safe to run again. Migrations add schemas and grants.
DO $$
DECLARE
    wanted text;
BEGIN
    -- plimsoll_owner owns schemas and runs migrations; the others are the login roles of the services.
    FOREACH wanted IN ARRAY ARRAY['plimsoll_owner', 'quota_enforcer'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I LOGIN', wanted);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END LOOP;
    EXECUTE format('ALTER DATABASE %I OWNER TO plimsoll_owner', current_database());
END
$$;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
